"""`make` and the classes agree: it fills in no defaults, so each use of it gives every field."""

import ast
from importlib import import_module
from pathlib import Path

import retrysafe
from retrysafe._core.model import Response, make

SOURCE = Path(retrysafe.__file__).parent


def uses() -> list[tuple[str, str, int]]:
    """Module, class and number of fields wherever `make` is called."""
    found: list[tuple[str, str, int]] = []
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(ast.Name("make"), [ast.Name(kind), ast.Tuple(fields)]):
                    found.append((module, kind, len(fields)))
                case ast.Call(ast.Name("make")):
                    if "make" in vars(import_module(module)) and import_module(module).make is make:
                        raise AssertionError(
                            f"{module}:{node.lineno} calls make in a way that is not checked"
                        )
                case _:
                    pass
    return found


def test_every_use_gives_every_field() -> None:
    found = uses()
    assert found
    for module, kind, fields in found:
        expected: tuple[str, ...] = getattr(import_module(module), kind)._fields
        assert fields == len(expected), f"{module} makes a {kind} of {fields} fields, not {len(expected)}"


def test_it_is_what_the_class_makes() -> None:
    made = make(Response, (200, (), b"body"))
    assert type(made) is Response
    assert made == Response(200, (), b"body")
    assert made.body == b"body"
