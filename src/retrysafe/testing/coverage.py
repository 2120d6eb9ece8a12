"""Whether an application protects its mutating routes, asserted in its own tests."""

from collections.abc import Iterable

from retrysafe.coverage import examine


def assert_protected(app: object, *, exempt: Iterable[str] = ()) -> None:
    """Fail with a sentence for each mutating route that is neither protected nor exempted.

    So has a protection that does not work, and an exemption that is not needed.  `exempt` has what
    `retrysafe routes --except` takes: `"/login"`, `"/internal/*"`, `"POST /login"`.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    complaints = examine(app).excepting(exempt).complaints()
    if complaints:
        raise AssertionError("\n".join(complaints))
