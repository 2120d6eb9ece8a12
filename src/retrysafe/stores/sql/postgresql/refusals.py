"""What the server refuses an operator, in an operator's words: somebody sits there and can act on them."""

from collections.abc import Generator
from contextlib import contextmanager

from retrysafe.errors import StoreError, StoreUnavailable
from retrysafe.stores.sql.postgresql.desk import TookTooLong
from retrysafe.stores.sql.postgresql.trouble import Trouble


@contextmanager
def explained() -> Generator[None]:
    try:
        yield
    except Trouble as trouble:
        raise _explanation(trouble) from None


def _explanation(trouble: Trouble) -> StoreError:
    said = trouble.reason
    match trouble.state:
        case "57014":
            return TookTooLong(f"it took too long, and PostgreSQL broke it off ({said}); nothing was done")
        case "55P03":
            return StoreUnavailable(
                f"somebody else has it locked for longer than can be waited for ({said}); nothing was done"
            )
        case "42501":
            return StoreUnavailable(
                f"this role may not do that ({said}): `retrysafe doctor` lists the rights that it needs, and "
                "`retrysafe sql --dialect postgresql` prints what a role that may make tables can run"
            )
        case "25006":
            return StoreUnavailable(f"this server takes no writes ({said}): give the address of the primary")
        case _:
            return trouble.as_error()
