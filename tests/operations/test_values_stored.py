"""Return values through every store: a retry gets what is equal to the first value, and of the same type."""

from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from retrysafe import Guard
from retrysafe.operations import once
from tests.operations.test_values import ANNOTATED, VALUES, alike

numbers = count()


def check(guard: Guard, annotation: object, value: object, key: str) -> None:
    def returned() -> Any:
        return value

    call = once(guard, key=key, action="returned", returns=annotation)
    first, again = call.call(returned), call.call(returned)
    assert (first.replayed, again.replayed) == (False, True)
    assert alike(again.value, value), f"{annotation}: {value!r} came back as {again.value!r}"


def test_every_supported_type_comes_back_from_every_store(guard: Guard) -> None:
    """The bytes of a store are not the codec's own: text, binary columns, other drivers."""
    for number, (annotation, value) in enumerate(VALUES):
        check(guard, annotation, value, f"value {number}")


def test_any_value_of_any_annotation_comes_back_from_every_store(guard: Guard) -> None:
    """Nested in whatever way."""

    @settings(max_examples=40, deadline=None)
    @given(st.data())
    def any_value(data: st.DataObject) -> None:
        annotation, values = data.draw(ANNOTATED)
        check(guard, annotation, data.draw(values), f"any {next(numbers)}")

    any_value()
