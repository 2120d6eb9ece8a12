"""`retrysafe arm`: let a store on Redis or Valkey be used that is new, or has lost its records."""

from retrysafe.cli import output, prompt
from retrysafe.cli.exits import Exit, Failure
from retrysafe.cli.options import ByOption, JsonOption, ReasonOption, StoreOption, YesOption
from retrysafe.cli.store import open_admin
from retrysafe.stores.admin import Arming

_CONSEQUENCE = (
    "The store is refused because it is new, or has lost its records, or this is another database. "
    "Once it is armed, requests and calls whose records are lost RUN AGAIN when they are retried."
)


def arm(
    store: StoreOption = None,
    reason: ReasonOption = None,
    by: ByOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Let a store on Redis or Valkey be used that is new, or has lost its records. Asks first."""
    with open_admin(store) as admin:
        if not isinstance(admin, Arming):
            raise Failure(
                "only a store on Redis or Valkey is armed, and this one is none",
                "Run retrysafe migrate to make its tables. Nothing was changed.",
                Exit.USAGE,
            )
        missing = admin.missing_sentinels()
        if missing:
            if not yes:
                prompt.require_terminal()
                output.notice(_CONSEQUENCE)
            note = prompt.ask_note(by, reason)
            if not yes:
                prompt.confirm("Arm the store?")
            admin.arm(note)
    if json:
        output.write_json({"armed": True, "were_missing": missing})
    else:
        output.write("The store is armed.\n" if missing else "Nothing to do: the store is armed.\n")
