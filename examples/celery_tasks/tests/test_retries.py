"""What becomes of a task that failed, when Celery retries it with the same id."""

from examples.celery_tasks.tests.running import WORKER, Run, Shop

LOST = "no route to the card network"


def runs_in(shop: Shop, id: str, *states: str) -> list[Run]:
    """One run for each of these states, in this order.

    A run that is retried ends after the message of the next one was sent, and perhaps after that one ends.
    """
    for state in states:
        shop.wait_for(id, state)
    return sorted(shop.runs(id), key=lambda run: states.index(run.state))


def test_a_failure_is_not_repeated(shop: Shop) -> None:
    """With effects outside it may have happened: the retry is refused, and says how the first run failed."""
    shop.send(f"{WORKER}.fail_once", "outside", id="fail-outside")
    first, second = runs_in(shop, "fail-outside", "RETRY", "FAILURE")
    assert first == Run("RETRY", LOST)
    assert second.is_refused("FAILURE", "The first call with this key failed")
    assert second.is_refused("FAILURE", LOST)


def test_a_failure_before_anything_was_done(shop: Shop) -> None:
    """`retry_on` and `NotDone` leave the key free, and the retry runs."""
    for kind, error in (("retry_on", LOST), ("not_done", "the card network is closed")):
        shop.send(f"{WORKER}.fail_once", kind, id=f"fail-{kind}")
        runs = runs_in(shop, f"fail-{kind}", "RETRY", "SUCCESS")
        assert runs == [Run("RETRY", error), Run("SUCCESS", kind)]


def test_a_failure_that_is_rolled_back_or_may_be_repeated(shop: Shop) -> None:
    """With effects in the database, or repeatable ones, the retry runs."""
    for kind in ("database", "repeatable"):
        shop.send(f"{WORKER}.fail_once", kind, id=f"fail-{kind}")
        runs = runs_in(shop, f"fail-{kind}", "RETRY", "SUCCESS")
        assert runs == [Run("RETRY", LOST), Run("SUCCESS", kind)]
    assert shop.rewards("database") == 1
