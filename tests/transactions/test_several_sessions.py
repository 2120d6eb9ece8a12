"""Several sessions in one guarded call: they share a transaction, and none loses what another committed."""

import pytest

import retrysafe
from retrysafe import NotJoined, stores
from retrysafe.sqlalchemy import sessionmaker
from tests.transactions.calls import guarded
from tests.transactions.ledgers import INSERT, SELECT, Place, a_guard


def test_two_sessions_one_inside_the_other(place: Place) -> None:
    """They share the transaction: each sees the other's, and each keeps or undoes its own."""
    guard = a_guard(stores.from_engine(place.engine))
    maker = sessionmaker(guard)

    def handler() -> None:
        with maker() as outer:
            outer.execute(INSERT, {"name": "a"})
            with maker() as inner:
                inner.execute(INSERT, {"name": "b"})
                inner.commit()
                inner.execute(INSERT, {"name": "c"})
            with outer.begin_nested():
                outer.execute(INSERT, {"name": "d"})
            outer.commit()

    assert guarded(guard, handler) == 201
    assert place.audit() == ["a", "b", "d"]


def test_a_session_that_only_reads_around_another(place: Place) -> None:
    """As one that authenticates: that it is closed last undoes nothing of what the other has committed."""
    guard = a_guard(stores.from_engine(place.engine))
    maker = sessionmaker(guard)

    def handler() -> None:
        with maker() as reader:
            assert reader.scalars(SELECT).all() == []
            with maker() as writer:
                writer.execute(INSERT, {"name": "a"})
                writer.commit()
            with maker.begin() as another:
                another.execute(INSERT, {"name": "b"})
            assert reader.scalars(SELECT).all() == ["a", "b"]

    assert guarded(guard, handler) == 201
    assert place.audit() == ["a", "b"]


def test_a_session_that_writes_after_another(place: Place) -> None:
    """It may be rolled back, and the other's is kept."""
    guard = a_guard(stores.from_engine(place.engine))
    maker = sessionmaker(guard)

    def handler() -> None:
        with maker() as first:
            assert first.scalars(SELECT).all() == []
            with maker.begin() as second:
                second.execute(INSERT, {"name": "a"})
            first.execute(INSERT, {"name": "b"})
            first.rollback()
            first.execute(INSERT, {"name": "c"})
            first.commit()

    assert guarded(guard, handler) == 201
    assert place.audit() == ["a", "c"]


@pytest.mark.parametrize("swallowed", [False, True])
def test_sessions_that_cannot_be_told_apart(place: Place, swallowed: bool) -> None:
    """One has written before the other has committed, and is rolled back: nothing is kept."""
    guard = a_guard(stores.from_engine(place.engine))
    maker = sessionmaker(guard)

    def handler() -> None:
        first, second = maker(), maker()
        first.execute(INSERT, {"name": "a"})
        second.execute(INSERT, {"name": "b"})
        second.commit()
        try:
            first.close()
        except NotJoined:
            if not swallowed:
                raise

    expected = retrysafe.CommitRefused if swallowed else NotJoined
    assert guarded(guard, handler, expected) == 500
    assert place.audit() == []


def test_sessions_that_do_not_take_turns(place: Place) -> None:
    """What the first one writes while the second has changes would be lost with them."""
    guard = a_guard(stores.from_engine(place.engine))
    maker = sessionmaker(guard)

    def handler() -> None:
        with maker() as first, maker() as second:
            first.scalars(SELECT).all()
            second.execute(INSERT, {"name": "b"})
            first.execute(INSERT, {"name": "a"})

    assert guarded(guard, handler, NotJoined) == 500
    assert place.audit() == []


def test_a_session_may_undo_its_own_savepoints(place: Place) -> None:
    """What it committed into a savepoint of its own is its own to roll back."""
    guard = a_guard(stores.from_engine(place.engine))

    def handler() -> None:
        with sessionmaker(guard)() as session:
            with session.begin_nested():
                session.execute(INSERT, {"name": "a"})
            session.rollback()
            session.execute(INSERT, {"name": "b"})
            session.commit()

    assert guarded(guard, handler) == 201
    assert place.audit() == ["b"]


def test_a_session_that_ends_around_another(place: Place) -> None:
    """One inside the other, or one after the other; whatever else they do, nothing may be lost silently."""
    guard = a_guard(stores.from_engine(place.engine))
    maker = sessionmaker(guard)

    def handler() -> None:
        first, second = maker(), maker()
        first.scalars(SELECT).all()
        second.scalars(SELECT).all()
        with pytest.raises(NotJoined, match="began last"):
            first.commit()
        first.execute(INSERT, {"name": "a"})
        first.commit()
        second.close()

    assert guarded(guard, handler, Exception) == 500
    assert place.audit() == []


def test_a_reader_with_a_savepoint_of_its_own_around_another(place: Place) -> None:
    """What is set free when the inner one is moved belongs to the one around it."""
    guard = a_guard(stores.from_engine(place.engine))
    maker = sessionmaker(guard)

    def handler() -> None:
        with maker() as reader:
            reader.scalars(SELECT).all()
            with reader.begin_nested():
                reader.scalars(SELECT).all()
                with maker.begin() as writer:
                    writer.execute(INSERT, {"name": "a"})

    assert guarded(guard, handler) == 201
    assert place.audit() == ["a"]
