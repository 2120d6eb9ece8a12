"""The folder of callbacks that are not acknowledged yet, which outlives the process.

A file is one request, written before its first attempt and removed after its acknowledgement.  What was given
up moves to a folder inside: `refused`, `expired`, `damaged`.  Nothing else is ever removed.

Who delivers a file holds an flock on it, which dies with the process.  A file appears by a hard link to one
that is written and locked already, so there is no moment at which another process finds it incomplete or
unlocked; and one that was locked is looked up again by its name, since its holder may have removed it.
"""

import logging
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import Literal

from retrysafe._runtime import fork
from retrysafe.callbacks.jobs import durable
from retrysafe.callbacks.jobs.errors import DamagedFile, FolderError
from retrysafe.callbacks.jobs.request import CallbackRequest
from retrysafe.errors import ConfigurationError

if sys.platform != "win32":
    import fcntl

    def _lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

else:

    def _lock(_fd: int) -> bool:
        raise ConfigurationError("folder needs flock, which Windows does not have")

    def _unlock(_fd: int) -> None:
        pass


log = logging.getLogger("retrysafe.callbacks.jobs")

REFUSED, EXPIRED, DAMAGED = "refused", "expired", "damaged"

_STALE = 3600.0
"""Seconds after which a file that was never finished belongs to a process that was killed: to write one takes
a fraction of a second."""


class Held:
    """A stored request that this process delivers."""

    def __init__(self, path: Path, request: CallbackRequest, fd: int) -> None:
        self.path = path
        self.request = request
        self._fd = fd
        fork.watch(self)

    def remove(self) -> None:
        """It was acknowledged."""
        try:
            self.path.unlink()
            for where in (REFUSED, EXPIRED):  # of an earlier delivery of the same callback
                (self.path.parent / where / self.path.name).unlink(missing_ok=True)
            durable.sync_folder(self.path.parent)
        except OSError as error:
            # It was delivered; a second delivery is a duplicate to the receiver.
            log.warning(
                "%s was acknowledged and could not be removed, so it will be delivered again: %s",
                self.path,
                error.strerror,
            )

    def set_aside(self, where: str) -> Path:
        """It was given up; gives the file's new place."""
        target = self.path.parent / where / self.path.name
        try:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            self.path.replace(target)
            durable.sync_folder(target.parent)
            durable.sync_folder(self.path.parent)
        except OSError as error:
            log.warning("%s could not be moved to %s: %s", self.path, target.parent, error.strerror)
            return self.path
        return target

    def release(self) -> None:
        if self._fd >= 0:
            _unlock(self._fd)  # a child that was forked a moment ago may still have the descriptor
            self._close()

    def adopt(self, other: "Held") -> None:
        """Take over the lock of another one for the same file."""
        self._fd, other._fd = other._fd, -1

    def forked(self) -> None:
        """A child shares the parent's lock, and would keep it if the parent died."""
        if self._fd >= 0:
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


class Folder:
    def __init__(self, path: str | PathLike[str]) -> None:
        if sys.platform == "win32":
            raise ConfigurationError("folder needs flock, which Windows does not have")
        self.path = Path(path)

    def hold(self, request: CallbackRequest) -> Held | None:
        """Store a request, or continue with the one that is stored; `None` if another process delivers it."""
        path = self.path / request.file_name
        with self._explained("written"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for where in (REFUSED, EXPIRED):
                with suppress(FileNotFoundError, DamagedFile):
                    request.check_same(_read(self.path / where / path.name), self.path / where / path.name)
            while True:
                try:
                    stored = _read(path)
                    request.check_same(stored, path)
                    fd = _open_locked(path)
                    if fd is None:
                        return None
                    held = Held(path, stored, fd)
                    try:
                        unchanged = _read(path) == stored
                    except BaseException:
                        held.release()
                        raise
                    if unchanged:
                        return held
                    held.release()  # removed and stored anew, before it was locked
                except FileNotFoundError:  # there was none, or its holder has removed it
                    with suppress(FileExistsError):  # another process was quicker
                        return Held(path, request, _create_locked(path, request.dump()))
                except DamagedFile as error:
                    # The caller has the same callback whole.
                    kept = self.path / DAMAGED / f"{path.stem}-{token_hex(4)}.json"
                    kept.parent.mkdir(mode=0o700, exist_ok=True)
                    with suppress(FileNotFoundError):
                        path.rename(kept)
                        log.warning("%s; moved to %s and written anew", error, kept)

    def take(self, path: Path) -> Held | Literal["busy", "gone"]:
        """One of `files`, unless another process is delivering it or has done so."""
        with self._explained("read"):
            try:
                fd = _open_locked(path)
            except FileNotFoundError:
                return "gone"
            if fd is None:
                return "busy"
            try:
                return Held(path, _read(path), fd)
            except BaseException:
                os.close(fd)
                raise

    def take_again(self, held: Held) -> Literal["held", "busy", "gone"]:
        """Lock one that was released, unless another process is delivering it or has done so meanwhile."""
        found = self.take(held.path)
        if not isinstance(found, Held):
            return found
        if found.request != held.request:
            found.release()
            return "gone"  # and stored anew: that is for a later run
        held.adopt(found)
        return "held"

    def restore(self) -> None:
        """Have what was given up pending again, with a new horizon."""
        with self._explained("restored"):
            for path in [*(self.path / REFUSED).glob("*.json"), *(self.path / EXPIRED).glob("*.json")]:
                # Another process has been quicker, or the same callback is pending anyway.
                with suppress(FileNotFoundError, FileExistsError, DamagedFile):
                    request = _read(path)._replace(first_attempt=time.time())
                    os.close(_create_locked(self.path / path.name, request.dump()))
                    path.unlink()

    def files(self) -> list[Path]:
        """What is pending, the oldest first."""
        found: list[tuple[float, Path]] = []
        with self._explained("read"):
            try:
                entries = list(self.path.iterdir())
            except FileNotFoundError:
                return []
            for entry in entries:
                with suppress(FileNotFoundError):  # another process has just delivered it
                    written = entry.stat().st_mtime
                    if entry.suffix == ".json" and entry.is_file():
                        found.append((written, entry))
                    elif entry.suffix == ".tmp" and entry.name[0] == "." and written < time.time() - _STALE:
                        entry.unlink()
        return [path for _, path in sorted(found)]

    @contextmanager
    def _explained(self, done: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise FolderError(
                f"callbacks cannot be {done} in {self.path}: {error.strerror or error}. Expected a folder in "
                f"which the user {os.geteuid()} may write, on a file system with hard links and flock"
            ) from error


def _read(path: Path) -> CallbackRequest:
    return CallbackRequest.load(path.read_bytes(), path)


def _open_locked(path: Path) -> int | None:
    """A descriptor that has the lock, `None` if another process has it."""
    fd = os.open(path, os.O_RDWR | durable.CLOSE_ON_EXEC)
    try:
        if _lock(fd):
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
            raise FileNotFoundError(path)  # this is another file of the same name
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _create_locked(path: Path, data: bytes) -> int:
    """For its owner alone: what is in it may be confidential."""
    fd, temporary = durable.create_beside(path, 0o600)
    try:
        try:
            _lock(fd)
            durable.write_through(fd, data)
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        durable.sync_folder(path.parent)
    except BaseException:
        os.close(fd)
        raise
    return fd
