"""What most tests of deliveries send, and both ways to send it."""

import asyncio
from collections.abc import Mapping
from os import PathLike
from typing import Protocol, Unpack

import pytest
from pydantic import BaseModel
from pydantic.networks import AnyUrl

from retrysafe.callbacks.jobs import (
    AttemptOptions,
    BackOff,
    Callback,
    Delivered,
    DeliveryOptions,
    NotDelivered,
    PendingCallback,
    deliver,
    deliver_async,
    deliver_pending,
    deliver_pending_async,
)

QUICK = BackOff(first=0.001, longest=0.002)
"""So that a test of ten attempts takes no time."""

CALLBACK = Callback(
    run_id="run-1",
    callback_id="8d7c8f3e-91b5-4d5b-8f0c-3f6a1b1c2d3e",
    status="completed",
    result_uri="s3://out/1.json",
    correlation_id="trace-1",
)
BODY = CALLBACK.model_dump_json().encode()


class Deliver(Protocol):
    def __call__(
        self,
        callback: BaseModel | Mapping[str, object] | bytes = CALLBACK,
        *,
        url: str | AnyUrl | None,
        **options: Unpack[DeliveryOptions],
    ) -> Delivered | NotDelivered: ...


class DeliverPending(Protocol):
    def __call__(
        self,
        folder: str | PathLike[str],
        *,
        patience: float | None = None,
        again: bool = False,
        **options: Unpack[AttemptOptions],
    ) -> list[PendingCallback]: ...


def blocking(
    callback: BaseModel | Mapping[str, object] | bytes = CALLBACK,
    *,
    url: str | AnyUrl | None,
    **options: Unpack[DeliveryOptions],
) -> Delivered | NotDelivered:
    options.setdefault("back_off", QUICK)
    return deliver(callback, url=url, **options)


def awaiting(
    callback: BaseModel | Mapping[str, object] | bytes = CALLBACK,
    *,
    url: str | AnyUrl | None,
    **options: Unpack[DeliveryOptions],
) -> Delivered | NotDelivered:
    options.setdefault("back_off", QUICK)
    return asyncio.run(deliver_async(callback, url=url, **options))


def pending_blocking(
    folder: str | PathLike[str],
    *,
    patience: float | None = None,
    again: bool = False,
    **options: Unpack[AttemptOptions],
) -> list[PendingCallback]:
    options.setdefault("back_off", QUICK)
    return deliver_pending(folder, patience=patience, again=again, **options)


def pending_awaiting(
    folder: str | PathLike[str],
    *,
    patience: float | None = None,
    again: bool = False,
    **options: Unpack[AttemptOptions],
) -> list[PendingCallback]:
    options.setdefault("back_off", QUICK)
    return asyncio.run(deliver_pending_async(folder, patience=patience, again=again, **options))


BOTH_WAYS = pytest.mark.parametrize("send", [blocking, awaiting])
BOTH_PENDING = pytest.mark.parametrize("pending", [pending_blocking, pending_awaiting])
