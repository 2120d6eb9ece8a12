"""Classes whose annotations are strings, as a module with this import has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, NotRequired, Required, TypeVar

from typing_extensions import ReadOnly, TypedDict

if TYPE_CHECKING:
    from tests.operations.elsewhere import Session  # type: ignore[import-not-found] # pyright: ignore[reportMissingImports, reportUnknownVariableType]

T = TypeVar("T")


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list["Tree"])
    parent: Tree | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    next: Page[T] | None = None


@dataclass(frozen=True)
class Numbers(Page[int]):
    total: int = 0


class Point(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    id: Required[int]
    name: str
    fixed: ReadOnly[str]


class Address(TypedDict):
    street: str
    door: NotRequired[ReadOnly[int]]


@dataclass
class ForTypeCheckers:
    session: Session  # pyright: ignore[reportUnknownVariableType]
