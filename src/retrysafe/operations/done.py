"""What the caller of an operation gets."""

from typing import Generic, NoReturn, TypeVar, cast

from retrysafe.errors import RetrysafeError

T = TypeVar("T")


class ValueOmitted(RetrysafeError, LookupError):
    """The operation was done, but its value was not stored: too large, or a secret."""


class _Omitted:
    """Stands for a value that was not stored."""


OMITTED = _Omitted()


class Done(Generic[T]):
    """The operation was done: by this call, or by an earlier one with the same key."""

    __slots__ = ("_value", "attempt", "replayed", "stored")
    __match_args__ = ("value", "replayed")

    def __init__(self, value: T | _Omitted, *, replayed: bool, attempt: int = 1, stored: bool = True) -> None:
        self._value = value
        self.replayed = replayed
        """Whether an earlier call did it, and this one only gives its value."""
        self.attempt = attempt
        """Which execution of the function it was: more than 1 after one that failed or was abandoned."""
        self.stored = stored
        """Whether a later call with the same key gets this value; not where the store did not accept it."""

    @property
    def value(self) -> T:
        """What the function returned."""
        if isinstance(self._value, _Omitted):
            _raise_omitted()
        return self._value

    @property
    def omitted(self) -> bool:
        """Whether the value was not stored, so that `value` raises."""
        return isinstance(self._value, _Omitted)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Done):
            return NotImplemented
        same = cast("Done[object]", other)
        return self._fields() == same._fields()

    __hash__ = None  # type: ignore[assignment]  # a value may be a list

    def _fields(self) -> tuple[object, ...]:
        return self._value, self.replayed, self.attempt, self.stored

    def __repr__(self) -> str:
        value = "omitted" if self.omitted else f"value={self._value!r}"
        return f"Done({value}, replayed={self.replayed})"


def _raise_omitted() -> NoReturn:
    raise ValueOmitted(
        "the operation was done, but its value was not stored: it is larger than max_response, the operation "
        "has no_store=True, or the function returned something else than its annotation says. Return an id "
        "to read it by, or raise max_response"
    )
