"""The code that a report is about, and whether it is still the same: only then does the report count."""

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tools.evidence.errors import EvidenceError

_MADE = "__pycache__"
"""By running it, so it is no code."""


class Sources(NamedTuple):
    """Files and folders, as seen from the root: what is in `of`, but for what is in `but`.  Where a file is
    in both, the nearest folder decides."""

    of: tuple[str, ...]
    but: tuple[str, ...] = ()

    def cover(self, path: str) -> bool:
        """Of a file, as git would name it."""
        return _depth(path, self.of) > _depth(path, self.but)

    def digest(self, root: Path) -> str:
        """Of the names and the contents of all files, as they are now."""
        found = hashlib.sha256()
        for path in sorted({*self._files(root)}):
            name = path.relative_to(root).as_posix().encode()
            content = hashlib.sha256(path.read_bytes()).digest()
            found.update(b"%d:%b%b" % (len(name), name, content))
        return found.hexdigest()

    def _files(self, root: Path) -> Iterator[Path]:
        for name in self.of:
            top = root / name
            if not top.exists():
                raise EvidenceError(
                    f"a part is said to be about {name}, and there is none: mend evidence/parts.py"
                )
            for path in top.rglob("*") if top.is_dir() else [top]:
                if path.is_file() and self.cover(path.relative_to(root).as_posix()):
                    yield path


def _depth(path: str, names: tuple[str, ...]) -> int:
    """Of the innermost of these that the file is in; 0, if it is in none."""
    pure = PurePosixPath(path)
    if _MADE in pure.parts:
        return 0
    return max((len(PurePosixPath(name).parts) for name in names if pure.is_relative_to(name)), default=0)
