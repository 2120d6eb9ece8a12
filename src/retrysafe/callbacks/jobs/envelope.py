"""What a service hands to a job, and what the job sends back: the ids travel with both.

The id of a callback is made when the job is launched, and not when it calls back: a job that is restarted
after its work reads the same envelope, and so sends the same id.
"""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Self, TypeVar, overload
from uuid import uuid4

import httpx
from pydantic import AfterValidator, AnyUrl, BaseModel, BeforeValidator, Field, HttpUrl, ValidationError

from retrysafe.callbacks.jobs import durable
from retrysafe.errors import ConfigurationError

LONGEST_ID = 255
"""Bytes of an id in UTF-8: a header line and a column for names have room for as much."""


def new_callback_id() -> str:
    """A random id that no other callback has (UUID version 4)."""
    return str(uuid4())


def _check_length(value: str) -> str:
    found = len(value.encode())
    if found > LONGEST_ID:
        raise ValueError(f"must have at most {LONGEST_ID} bytes in UTF-8, got {found}")
    return value


def checked_url(url: str | AnyUrl) -> str:
    """A URL to which a request can be sent.  A launch is refused for one to which none can: its job would
    find out when its work is done."""
    try:
        parsed = httpx.URL(str(url))
        host = parsed.host
        parsed.raw_host.decode().encode("idna")  # as it is looked up: labels of 1 to 63 characters
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigurationError(f"url is not valid: {error}") from None
    if parsed.scheme not in ("http", "https") or not host:
        raise ConfigurationError(
            f"url must be an absolute http or https URL, got the scheme {parsed.scheme!r} and the host "
            f"{host!r}"
        )
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise ConfigurationError(f"url is not valid: expected a port from 1 to 65535, got {parsed.port}")
    return str(url)


def _check_url(url: HttpUrl) -> HttpUrl:
    checked_url(url)
    return url


def _none_if_empty(value: object) -> object:
    """Launchers that know no ids, and jobs that echo what they have, may write an empty text."""
    return None if value == "" else value


Id = Annotated[str, Field(max_length=LONGEST_ID), AfterValidator(_check_length)]
OptionalId = Annotated[Id | None, BeforeValidator(_none_if_empty)]


class ExecutionContext(BaseModel, frozen=True, extra="allow", populate_by_name=True):
    """What a job needs to know about its launch.  Subclass it to add fields.

    Fields that this version does not know are kept: a job may be older than its launcher, and what it passes
    on to jobs of its own is then still complete.
    """

    callback_id: OptionalId = Field(
        default=None,
        description="Identifies one execution of the job, whose callback is processed once however often it "
        "arrives. The job sends it back as it is. At most 255 bytes.",
    )
    callback_url: Annotated[HttpUrl, AfterValidator(_check_url)] | None = Field(
        default=None, description="Where the job sends its callback. Without one it sends none."
    )
    correlation_id: OptionalId = Field(
        default=None,
        description="The same in everything that belongs to one run, to find it in the logs of all services.",
    )


class Callback(BaseModel, frozen=True, populate_by_name=True):
    """What a job sends when it is done.  Subclass it to narrow `status` to an enumeration, or to add fields.

    Fields that this version does not know are ignored: a job may be newer than the service.
    """

    run_id: str = Field(description="The resource that the callback is about.")
    callback_id: OptionalId = Field(
        default=None, description="As it was in the envelope. Jobs that know no callback ids send none."
    )
    status: str = Field(description="How the execution ended.")
    result_uri: str = Field(default="", description="Where the output is.")
    correlation_id: OptionalId = Field(default=None, description="As it was in the envelope.")


C = TypeVar("C", bound=Callback)


class Envelope(BaseModel, frozen=True, extra="allow", populate_by_name=True):
    """The input of a job.  Subclass it to add the job's own inputs, or to have a `context` of another class.

    Unknown fields are kept, as in a context.
    """

    run_id: str = Field(description="The resource that the job works for.")
    context: ExecutionContext

    @classmethod
    def launch(
        cls,
        *,
        run_id: str,
        callback_url: str | HttpUrl | None,
        correlation_id: str | None = None,
        context: Mapping[str, object] | None = None,
        **fields: object,
    ) -> Self:
        """An envelope for one new execution, with a callback id that no other has.

        `context` has the fields that a subclass of `ExecutionContext` adds, `fields` the job's own inputs.
        """
        known = _names(cls)
        if unknown := sorted(fields.keys() - known):
            # Reading keeps what it does not know; here it would be a misspelt name that is never noticed.
            expected = ", ".join(sorted(known - {"context"}))
            raise ConfigurationError(f"{cls.__name__} has no field {unknown[0]!r}: expected {expected}")
        return cls.model_validate(
            {
                **fields,
                "run_id": run_id,
                "context": {
                    **(context or {}),
                    "callback_id": new_callback_id(),
                    "callback_url": callback_url,
                    "correlation_id": correlation_id or str(uuid4()),
                },
            }
        )

    def write(self, path: str | PathLike[str]) -> None:
        """Write it as a file.  A reader sees the whole of it or no file; it is on the disk afterwards."""
        durable.replace(Path(path), self.model_dump_json(by_alias=True).encode())

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Self:
        try:
            return cls.model_validate_json(Path(path).read_bytes())
        except ValidationError as error:
            error.add_note(f"in the envelope {Path(path)}")
            raise

    @overload
    def callback(self, *, status: str, result_uri: str = "") -> Callback: ...

    @overload
    def callback(self, kind: type[C], *, status: str, result_uri: str = "", **fields: object) -> C: ...

    def callback(
        self, kind: type[Callback] = Callback, *, status: str, result_uri: str = "", **fields: object
    ) -> Callback:
        """What this job sends back, with the ids of its launch; `kind` is the application's own subclass."""
        return kind.model_validate(
            {
                **fields,
                "run_id": self.run_id,
                "callback_id": self.context.callback_id,
                "status": status,
                "result_uri": result_uri,
                "correlation_id": self.context.correlation_id,
            }
        )


def _names(model: type[BaseModel]) -> set[str]:
    """What a field may be called when an instance is made."""
    names = set(model.model_fields)
    for field in model.model_fields.values():
        names |= {alias for alias in (field.alias, field.validation_alias) if isinstance(alias, str)}
    return names
