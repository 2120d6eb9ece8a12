"""The same records in two stores, the same commands, and the same output of both."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

from retrysafe._core.model import Response
from tests.cli.records import Shop
from tests.cli.terminal import Run, run

_BEST_EFFORT = "keeps no append-only file: best effort"
"""What is said of a Valkey server of the tests, which spares the disk."""

WHY = ["--reason", "found in the ledger", "--by", "ops@example.com", "--yes"]


def stock(shop: Shop) -> dict[str, str]:
    """One record of each kind; gives their ids."""
    return {
        name: claim.id.hex()
        for name, claim in {
            "abandoned": shop.abandoned("abandoned-key-0001", ago=7200.0),
            "to be forgotten": shop.abandoned("abandoned-key-0002", ago=3600.0),
            "running": shop.running("running-key-0001"),
            "completed": shop.finished("completed-key-001", ago=500.0),
            "failed": shop.finished("failed-key-00001", Response(500, (), b"x"), state="failed"),
            "checkpointed": shop.checkpointed("checkpoint-key-01", Response(200), ago=400.0),
            "digest": shop.finished("secret-key-00001", ago=600.0, keep_key=False),
            "odd": shop.finished(
                "odd-key-00000001", scope=(("tenant", 'é"\\[]\n'),), target="/%_:x", ago=700.0
            ),
        }.items()
    } | {"expired": shop.expired(3)[0].id.hex()}


def told(done: Run) -> object:
    """A document without what depends on the moment at which it was asked for."""
    said = [line for line in done.err.splitlines() if _BEST_EFFORT not in line]
    assert (done.code, said) == (0, []), done
    return _timeless(json.loads(done.out))


def _timeless(document: object) -> object:
    if isinstance(document, dict):
        return {name: _timeless(value) for name, value in document.items() if name not in ("age", "now")}
    if isinstance(document, list):
        return [_timeless(value) for value in document]
    if isinstance(document, str) and re.match(r"\d{4}-\d\d-\d\dT", document):
        return "a time"
    return document


def commands(ids: dict[str, str]) -> list[list[str]]:
    """Lists, one record, statistics, interventions, what operators did, a purge; in this order."""
    return [
        ["ls"],
        ["ls", "--state", "abandoned", "--limit", "2"],
        ["ls", "--scope", "tenant=acme", "--scope", "user=42", "--path", "/pay*", "--door", "request"],
        ["ls", "--older", "90m", "--younger", "3h", "--show-keys"],
        ["ls", "--path", "/%*"],
        *(["show", ids[name]] for name in ("abandoned", "completed", "checkpointed", "odd")),
        ["show", ids["digest"], "--body"],
        ["stats", "--groups", "3"],
        ["resolve", ids["abandoned"], "--done", "--status", "201", "--body", '{"payment": 7}', *WHY],
        ["release", "abandoned-key-0002", *WHY],
        ["release", ids["failed"], "--state", "failed", *WHY],
        ["release", "--path", "/%*", "--state", "completed", *WHY],
        ["show", ids["abandoned"], "--body"],
        ["audit"],
        ["audit", "--record", ids["abandoned"][:8]],
        ["purge", "--dry-run"],
        ["purge", "--reason", "a test", "--by", "ops@example.com"],
        ["audit", "--limit", "1"],
        ["stats"],
        ["ls"],
    ]


def assert_told_alike(here: str, there: str, ids: dict[str, str]) -> None:
    """Of stores whose records are those of `stock`."""
    with ThreadPoolExecutor(2) as both:
        for command in commands(ids):

            def ask(url: str, command: list[str] = command) -> object:
                return told(run(*command, "--json", store=url))

            first, second = both.map(ask, [here, there])
            assert first == second, command
