"""Delivers what earlier processes have left in a folder."""

import heapq
from collections import deque
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple

from retrysafe.callbacks.jobs.errors import DeliveryFailed, DeliveryRefused, FolderError
from retrysafe.callbacks.jobs.flow import Delivered, Flow, Pause, Terms, apart, deliver_held
from retrysafe.callbacks.jobs.folder import Folder, Held
from retrysafe.errors import ConfigurationError

AT_ONCE = 200
"""Callbacks that are held at a time.  Each has an open file, and a process may have 1024 by default."""

Outcome = Literal["delivered", "refused", "expired", "busy", "left", "damaged"]


class PendingCallback(NamedTuple):
    """What became of one file."""

    file: Path
    outcome: Outcome
    """`busy`: another process is delivering it.  `left`: not acknowledged yet when the patience ended, or
    impossible to sign.  Both stay where they are, and so does what is `damaged`."""
    detail: str
    """Why it was not delivered, empty if it was."""
    callback_id: str | None
    delivered: Delivered | None


class _Callback:
    """One file, and the flow that delivers it."""

    def __init__(self, folder: Folder, path: Path, terms: Terms) -> None:
        self._folder = folder
        self._path = path
        self._terms = terms
        self._callback_id: str | None = None

    def ended(
        self, outcome: Outcome, detail: str = "", delivered: Delivered | None = None
    ) -> PendingCallback:
        return PendingCallback(self._path, outcome, detail, self._callback_id, delivered)

    def flow(self) -> Flow[PendingCallback | None]:
        """`None` if there is nothing to report: another process has delivered it meanwhile."""
        try:
            held = yield from apart(lambda: self._folder.take(self._path))
        except FolderError as error:
            return self.ended("damaged", str(error))
        if not isinstance(held, Held):
            return self.ended("busy", "another process is delivering it") if held == "busy" else None
        self._callback_id = held.request.callback_id
        try:
            self._terms.check_signing(held.request.message_id)
            return self.ended("delivered", delivered=(yield from deliver_held(held, self._terms)))
        except DeliveryRefused as error:
            self._path = error.file or self._path
            return self.ended("refused", str(error))
        except DeliveryFailed as error:
            self._path = error.file or self._path
            return self.ended("expired", str(error))
        except ConfigurationError as error:  # this id cannot be signed
            return self.ended("left", str(error))
        finally:
            held.release()


def deliver_files(
    folder: Folder, terms: Terms, patience: float | None, *, again: bool
) -> Flow[list[PendingCallback]]:
    """All of them, one attempt at a time: a callback that waits for its next attempt keeps no other waiting.

    Attempts are not made at the same time, so that a service that is back is not met by all at once.
    """
    if again:
        yield from apart(folder.restore)
    files = yield from apart(folder.files)
    began = monotonic()
    waiting = deque((number, _Callback(folder, path, terms)) for number, path in enumerate(files))
    due: list[tuple[float, int, _Callback, Flow[PendingCallback | None]]] = []
    found: dict[int, PendingCallback | None] = {}
    try:
        while waiting or due:
            while waiting and len(due) < AT_ONCE:
                number, callback = waiting.popleft()
                heapq.heappush(due, (began, number, callback, callback.flow()))
            at, number, callback, flow = due[0]
            if patience is not None and at > began + patience:
                heapq.heappop(due)
                flow.close()
                found[number] = callback.ended("left", f"not acknowledged within {patience:g} s")
                continue
            if (early := at - monotonic()) > 0:
                yield Pause(early)
            step = yield from _run_to_pause(flow)
            if isinstance(step, Pause):
                heapq.heapreplace(due, (monotonic() + step.seconds, number, callback, flow))
            else:
                heapq.heappop(due)
                found[number] = step
    finally:
        for _, _, _, flow in due:
            flow.close()
    return [one for _, one in sorted(found.items()) if one is not None]


def _run_to_pause(flow: Flow[PendingCallback | None]) -> Flow[Pause | PendingCallback | None]:
    """All its steps up to the next pause, or its end."""
    try:
        step = next(flow)
        while not isinstance(step, Pause):
            step = flow.send((yield step))
    except StopIteration as end:
        ended: PendingCallback | None = end.value
        return ended
    return step
