"""PostgreSQL for operators: what the suite does not ask, because no other store has it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import cast

import psycopg
import pytest

from retrysafe.errors import SchemaMismatch, StoreUnavailable
from retrysafe.model import Final, Purged, Record, Response
from retrysafe.stores.administration import Admin, Note, Query, Share
from retrysafe.stores.sql.postgresql import admin as administration
from retrysafe.stores.sql.postgresql.desk import SNAPSHOT, Desk
from retrysafe.testing import an_outcome
from retrysafe.testing.postgres import PostgresServer
from tests.stores.desks import PATIENT, Books, desk_at, session_at, warnings_of

NOTE = Note("ops@example.com", "the bank has the payment")
BY_HAND = Final("completed", Response(201, (), b"paid"))

Act = Callable[[Admin, Record], bool]


def release(admin: Admin, seen: Record) -> bool:
    return admin.release(seen, NOTE)


def resolve(admin: Admin, seen: Record) -> bool:
    return admin.resolve(seen, BY_HAND, NOTE)


either = pytest.mark.parametrize("act", [release, resolve])


class TestInterventions:
    """The change and its entry are one transaction, and wait for nobody for ever."""

    @either
    def test_there_is_no_change_without_its_entry(self, books: Books, act: Act) -> None:
        """The entry cannot be written, so the record stays as it was."""
        seen = books.abandoned()
        books.execute("ALTER TABLE retrysafe_audit ADD CHECK (by = 'nobody')")
        with pytest.raises(StoreUnavailable):
            act(books.admin, seen)
        assert books.keys(Query(standings=frozenset({"abandoned"}))) == ["key"]
        assert books.admin.audit() == []
        books.execute("ALTER TABLE retrysafe_audit DROP CONSTRAINT retrysafe_audit_by_check")
        assert act(books.admin, seen) is True, "and after the trouble it works again"

    @either
    def test_a_locked_record_is_not_waited_for(self, books: Books, act: Act) -> None:
        """Somebody holds the row: the operator is told, nothing is done, and it works afterwards."""
        seen = books.abandoned()
        hasty = desk_at(books.url, deadline=0.2)
        with psycopg.connect(books.url) as holder:
            holder.execute("SELECT 1 FROM retrysafe_records FOR UPDATE")
            with pytest.raises(StoreUnavailable, match="nothing was done"):
                act(hasty, seen)
            holder.rollback()
            assert hasty.audit() == []
            assert act(hasty, seen) is True
        hasty.close()

    @either
    def test_what_the_other_one_did_is_respected(self, books: Books, act: Act) -> None:
        """Whoever had the row renewed it while the operator waited for it: the operator sees that."""
        seen = books.abandoned()
        with psycopg.connect(books.url) as owner:
            owner.execute("UPDATE retrysafe_records SET lease_until = now() + interval '1 hour'")
            script = (
                "import sys, threading\n"
                "from tests.stores.desks import desk_at\n"
                "from tests.stores.test_postgresql_admin import release, resolve\n"
                "from retrysafe.stores.administration import Query\n"
                "desk = desk_at(sys.argv[1])\n"
                "[seen] = desk.list(Query())\n"
                "print('ready', flush=True)\n"
                "print(dict(release=release, resolve=resolve)[sys.argv[2]](desk, seen.record), flush=True)\n"
            )
            name = cast(str, getattr(act, "__name__"))  # noqa: B009 - not in its type
            process = subprocess.Popen(
                [sys.executable, "-c", script, books.url, name], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            _until(lambda: _waiting(books) == 1)
            owner.commit()
            assert process.communicate(timeout=60)[0] == "False\n"
        assert books.record_of(seen).token == seen.token
        assert books.admin.audit() == []


def _waiting(books: Books) -> int:
    [(number,)] = books.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return cast(int, number)


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)
