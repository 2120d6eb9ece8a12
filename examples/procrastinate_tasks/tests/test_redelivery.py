"""Jobs that run twice, and workers that are killed: with real workers on a real database."""

from examples.procrastinate_tasks.tests.running import CHARGE, LABEL, RETRY_STALLED, REWARD, Shop


def test_without_a_key(shop: Shop) -> None:
    """What there is a key for: a job that is taken for stalled while it runs charges twice."""
    shop.gates.close("after plain")
    job = shop.defer("charge_without_a_key", order="plain", cents=500)
    shop.wait_until_held("after plain")
    shop.retry(job)
    shop.wait_for(job, "succeeded")
    assert shop.charges("plain") == 2
    shop.gates.open("after plain")


def test_runs_twice(shop: Shop) -> None:
    """The second run comes again until the first has ended."""
    shop.gates.close("after twice")
    job = shop.defer(CHARGE, order="twice", cents=500)
    shop.wait_until_held("after twice")
    shop.retry(job)
    shop.wait_until(lambda: shop.attempts(job) >= 2)  # once by us, once because it is in flight
    assert shop.charges("twice") == 1
    shop.gates.open("after twice")
    shop.wait_for(job, "succeeded")
    assert shop.charges("twice") == 1


def test_run_again_after_it_was_done(shop: Shop) -> None:
    """A worker that dies before it could note that the job is done leaves it as `doing`: it is replayed."""
    job = shop.defer(CHARGE, order="done", cents=500)
    shop.wait_for(job, "succeeded")
    shop.forget_that_it_is_done(job)
    shop.retry(job)
    shop.wait_for(job, "succeeded")
    assert shop.charges("done") == 1


def test_killed_in_the_middle(shop: Shop) -> None:
    """SIGKILL before the effect and after it, wherever the effect is.  Then stalled jobs are retried."""
    jobs = {
        **{order: shop.hold(CHARGE, order, cents=500) for order in places("outside")},
        **{order: shop.hold(LABEL, order, address="1 Main Street") for order in places("repeatable")},
        **{
            order: shop.hold(REWARD, order, customer="ann", points=10, address="1 Main Street")
            for order in places("database")
        },
    }
    shop.kill_worker()
    shop.let_a_minute_pass()
    shop.start_worker()
    shop.wait_for(shop.defer(RETRY_STALLED, timestamp=0), "succeeded")

    # At most once.  What is not known is said to be unknown, and listed for an operator.
    for order, charged in zip(places("outside"), (0, 1), strict=True):
        shop.wait_for(jobs[order], "failed")
        assert shop.charges(order) == charged
        assert shop.record(str(jobs[order])).standing == "abandoned"
    assert shop.log.count("OutcomeUnknown") >= 2
    # Done again.
    for order in places("repeatable"):
        shop.wait_for(jobs[order], "succeeded")
        assert shop.record(str(jobs[order])).record.attempt == 2
    # Once, and so is the job that was deferred in the same transaction.
    for order in places("database"):
        shop.wait_for(jobs[order], "succeeded")
        assert shop.rewards(order) == 1
        assert shop.labels_deferred(order) == 1


def places(effects: str) -> tuple[str, str]:
    return f"{effects}-before", f"{effects}-after"


def test_aborted(shop: Shop) -> None:
    """To abort a job cancels it, and not the operation: what it did is stored."""
    job = shop.hold(CHARGE, "aborted-after", cents=500)
    shop.abort(job)
    shop.wait_for(job, "aborted")
    shop.gates.open("after aborted-after")
    shop.wait_until(lambda: shop.record(str(job)).standing == "completed")
    assert shop.charges("aborted-after") == 1
