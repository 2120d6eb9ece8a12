"""Delivers what earlier processes have left in a folder."""

import heapq
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple

from retrysafe.callbacks.jobs.errors import DeliveryFailed, DeliveryRefused, FolderError
from retrysafe.callbacks.jobs.flow import Delivered, Flow, Pause, Terms, apart, deliver_held
from retrysafe.callbacks.jobs.folder import Folder, Held
from retrysafe.errors import ConfigurationError

AT_ONCE = 200
"""Callbacks that are held at a time.  Each has an open file, and a process may have 1024 by default.  Where
there are more, those that wait for their next attempt are released until then."""

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
        self._held: Held | None = None
        self._released = False
        self._flow = self._deliver()

    def close(self) -> None:
        self._flow.close()

    def release(self) -> None:
        """Between two attempts: another process may deliver it."""
        if self._held is not None:
            self._held.release()
            self._released = True

    def run(self) -> Flow[Pause | PendingCallback | None]:
        """All its steps up to the next pause, or its end: `None` if there is nothing to report, because
        another process has delivered it meanwhile."""
        held = self._held
        if held is not None and self._released:
            try:
                found = yield from apart(lambda: self._folder.take_again(held))
            except FolderError as error:
                self.close()
                return self.ended("damaged", str(error))
            if found != "held":
                self.close()
                return self._taken() if found == "busy" else None
            self._released = False
        try:
            step = next(self._flow)
            while not isinstance(step, Pause):
                step = self._flow.send((yield step))
        except StopIteration as end:
            ended: PendingCallback | None = end.value
            return ended
        return step

    def ended(
        self, outcome: Outcome, detail: str = "", delivered: Delivered | None = None
    ) -> PendingCallback:
        return PendingCallback(self._path, outcome, detail, self._callback_id, delivered)

    def _taken(self) -> PendingCallback:
        return self.ended("busy", "another process is delivering it")

    def _deliver(self) -> Flow[PendingCallback | None]:
        try:
            held = yield from apart(lambda: self._folder.take(self._path))
        except FolderError as error:
            return self.ended("damaged", str(error))
        if not isinstance(held, Held):
            return self._taken() if held == "busy" else None
        self._held = held
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
    due = [(began, number, _Callback(folder, path, terms)) for number, path in enumerate(files)]
    found: dict[int, PendingCallback | None] = {}
    try:
        while due:
            at, number, callback = due[0]
            if patience is not None and at > began + patience:
                heapq.heappop(due)
                callback.close()
                found[number] = callback.ended("left", f"not acknowledged within {patience:g} s")
                continue
            if (early := at - monotonic()) > 0:
                yield Pause(early)
            step = yield from callback.run()
            if isinstance(step, Pause):
                if len(due) > AT_ONCE:
                    callback.release()
                heapq.heapreplace(due, (monotonic() + step.seconds, number, callback))
            else:
                heapq.heappop(due)
                found[number] = step
    finally:
        for _, _, callback in due:
            callback.close()
    return [one for _, one in sorted(found.items()) if one is not None]
