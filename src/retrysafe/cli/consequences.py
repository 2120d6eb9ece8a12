"""What an intervention leads to, said before it is done."""

from collections.abc import Sequence

from retrysafe._core.model import Final, Record
from retrysafe.cli.format import size_text
from retrysafe.cli.words import words
from retrysafe.stores.admin import Sighting, Standing

_DELETED: dict[Standing, str] = {
    "abandoned": "The record",
    "waiting": "This {call} waits for a worker. Its stored payload",
    "failed": "The stored failure",
    "completed": "This {call} is DONE. Its stored {result}",
}


_ACKNOWLEDGED = (
    "Its sender was told that it is stored, and may never deliver it again: then it is not handled."
)


def of_release(seen: Sighting) -> str:
    """Of one record, in any standing but in progress."""
    said = words(seen.record.door)
    deleted = _DELETED[seen.standing].format(**said._asdict())
    danger = _ACKNOWLEDGED if seen.standing == "waiting" else _danger(seen.record)
    return (
        f"{deleted} will be deleted, and the next {said.call} with this key will RUN the {said.code} again. "
        f"{danger}"
    )


def _danger(seen: Record) -> str:
    if seen.state == "completed":
        call = words(seen.door).call
        return f"Whatever it did will then be done twice, also if that {call} is only a late retry."
    if seen.checkpointed:
        return "Part of its response was sent: whatever leads to that response will then be done twice."
    if seen.mode == "tx":
        return (
            "What the first attempt did in its transaction was rolled back; other effects would be repeated."
        )
    return "If the first attempt did anything, it will then be done twice."


def of_releases(standing: Standing | None, seen: Sequence[Sighting]) -> str:
    """Of several records; `None`: abandoned and failed ones."""
    said = words(*(one.record.door for one in seen))
    start, end = "", "If an attempt did anything, it will then be done twice."
    if standing == "completed":
        start, end = "They are DONE. ", "Whatever they did will then be done twice."
    if standing == "waiting":
        start = "They wait for a worker. "
        end = "Their senders were told that they are stored, and may never deliver them again."
    return (
        f"{start}Each record will be deleted, and the next {said.call} with its key will RUN the {said.code} "
        f"again. {end}"
    )


def of_resolution(seen: Sighting, final: Final) -> str:
    """Of settling an abandoned record with this outcome."""
    return f"Retries with this key will get {result_text(seen.record, final)}. {no_run(seen, final.state)}"


def no_run(seen: Sighting, state: str) -> str:
    """What does not happen any more once a record is settled."""
    unless = "" if state == "completed" else ', unless the service chose failed="retry"'
    again = f"The {words(seen.record.door).code} will not run again{unless}."
    return f"{again} No worker will handle its payload." if seen.standing == "waiting" else again


def result_text(record: Record, final: Final) -> str:
    """What retries get."""
    return _describe_outcome(final) if record.door == "operation" else _describe(final)


def _describe_outcome(final: Final) -> str:
    if final.state == "failed":
        return "PreviouslyFailed"
    if final.omitted:
        return "no value, but that it was done"
    return f"the value that you gave, {size_text(len(final.response.body))} of JSON"


def _describe(final: Final) -> str:
    status = final.response.status
    if final.omitted:
        return f"{status} with an empty body that is marked as omitted"
    return (
        f"{status} with {size_text(len(final.response.body))} of body"
        if final.response.body
        else f"{status} without a body"
    )
