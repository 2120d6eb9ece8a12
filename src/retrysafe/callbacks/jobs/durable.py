"""Files that are there in full or not at all, and are still there after a power failure."""

import os
import sys
from pathlib import Path
from secrets import token_hex

CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)


def create_beside(path: Path, mode: int) -> tuple[int, Path]:
    """A new file in the same folder, so that it can be renamed to `path`, and open for writing."""
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC | getattr(os, "O_BINARY", 0)
    return os.open(temporary, flags, mode), temporary


def write_through(fd: int, data: bytes) -> None:
    """All of it, to the disk."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    os.fsync(fd)


def sync_folder(path: Path) -> None:
    """Until then, a name that was added or removed may come back as it was."""
    if sys.platform == "win32":  # which cannot open folders
        return
    fd = os.open(path, os.O_RDONLY | CLOSE_ON_EXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(path: Path, data: bytes) -> None:
    """Write a file whose readers see the old content or the new one.  Its permissions follow the umask."""
    fd, temporary = create_beside(path, 0o666)
    try:
        try:
            write_through(fd, data)
        finally:
            os.close(fd)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
