"""What a planted bug is, and how one is put into code that is running.

A store's bug is a store of its own, which the setting names.  Any other is put where the code looks it up, a
module's attribute or a statement's text, and taken out again.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

from retrysafe._core import fingerprint, keys, protocol
from retrysafe._core.steps import Call, Flow, Result, Step
from retrysafe.testing.simulate.callbacks.setting import CallbackSetting
from retrysafe.testing.simulate.setting import Setting

T = TypeVar("T")

Plant = Callable[[], AbstractContextManager[None]]

REASONED = "a mistake that suggests itself"
"""Where a bug was seen that was seen nowhere."""


class Planted(NamedTuple):
    name: str
    """A sentence about the code, and no other bug's."""
    seen: str
    """Where this mistake was made."""
    setting: Setting | CallbackSetting
    """A world in which it shows."""
    plant: Plant = nullcontext
    """While this is open, the bug is in the code.  Which promise it breaks is seen when it is caught."""


class LeftToTests(NamedTuple):
    """A bug that the simulator does not meet, or not on this database; a test of the library does."""

    name: str
    seen: str
    test: str
    """The id of the test, or of several, which fails while the bug is in the code, and passes without it."""
    plant: Plant


HOLD = Setting("hold")
RETRY = Setting("retry", abandoned="retry", failed="retry")
REPLAY = Setting("retry, failures are final", abandoned="retry")
TX = Setting("tx", mode="tx", abandoned="retry", failed="retry")


def clear_caches() -> None:
    """What was computed without a bug must not hide it, nor what was computed with it outlive it."""
    for module in (fingerprint, keys):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def patching(module: object, name: str, make: Callable[[Any], object]) -> Plant:
    """Put what is made of a module's own function in its place."""

    @contextmanager
    def plant() -> Generator[None]:
        real = getattr(module, name)
        setattr(module, name, make(real))
        clear_caches()
        try:
            yield
        finally:
            setattr(module, name, real)
            clear_caches()

    return plant


def together(*plants: Plant) -> Plant:
    """Several changes that are one bug."""

    @contextmanager
    def plant() -> Generator[None]:
        with ExitStack() as stack:
            for one in plants:
                stack.enter_context(one())
            yield

    return plant


Perform = Callable[[Step], Flow[object]]


def performed(flow: Flow[T], perform: Perform) -> Flow[T]:
    """Do a flow's steps in another way than it asks for them."""
    try:
        step = next(flow)
        while True:
            try:
                reply = yield from perform(step)
            except GeneratorExit:
                flow.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the flow knows what it means
                step = flow.throw(error)
            else:
                step = flow.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


Once = Callable[[Call], Flow[Result]]


def doing(make: Callable[[Call], Perform]) -> Plant:
    """Do all steps of a request in another way."""

    def plant(real: Once) -> Once:
        return lambda call: performed(real(call), make(call))

    return patching(protocol, "once", plant)
