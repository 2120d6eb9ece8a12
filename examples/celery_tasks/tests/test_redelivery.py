"""Messages that come twice, and workers that are killed: with real workers and a real broker."""

import os
import signal
from collections.abc import Iterator

import pytest

from examples.celery_tasks.tests.running import WORKER, Run, Shop
from retrysafe.testing.valkey import ValkeyServer


def test_without_a_key(shop: Shop) -> None:
    """What there is a key for: a message that is visible again before its task has ended charges twice."""
    shop.gates.close("after plain")
    shop.send(f"{WORKER}.charge_without_a_key", "plain", 500, id="plain")
    shop.wait_until_held("after plain")
    shop.show_again()
    shop.wait_for("plain", "SUCCESS")
    assert shop.charges("plain") == 2
    shop.gates.open("after plain")


def test_visible_twice(shop: Shop) -> None:
    """The second delivery comes again until the first has ended, and then has its value."""
    shop.gates.close("after twice")
    shop.send("charge_order", "twice", 500, id="twice")
    shop.wait_until_held("after twice")
    shop.show_again()
    assert all(run.is_refused("RETRY", "still running") for run in shop.wait_for("twice", "RETRY"))
    shop.gates.open("after twice")
    ended = [run.value for run in shop.wait_for("twice", "SUCCESS", times=2) if run.state == "SUCCESS"]
    assert ended[0] == ended[1]
    assert shop.charges("twice") == 1


def test_visible_twice_and_killed(shop: Shop) -> None:
    """The second delivery is the only message that is left when the first worker dies: it does the work."""
    shop.gates.close("after heir")
    shop.send("reward_order", "ann", "heir", 10, id="heir")
    first = shop.wait_until_held("after heir")
    shop.show_again()
    shop.wait_for("heir", "RETRY")
    os.kill(first, signal.SIGKILL)
    assert shop.wait_for("heir", "SUCCESS")[-1] == Run("SUCCESS", 10)
    assert shop.rewards("heir") == 1


def test_published_twice(shop: Shop) -> None:
    """A producer that does not know whether its message arrived sends it again, with the same id."""
    for _ in range(2):
        shop.send("charge_order", "published", 500, id="published")
    ended = [run.value for run in shop.wait_for("published", "SUCCESS", times=2) if run.state == "SUCCESS"]
    assert ended[0] == ended[1]
    assert shop.charges("published") == 1


def test_another_task_with_the_same_id(shop: Shop) -> None:
    """The key belongs to the first one.  The other fails, and is not tried again."""
    shop.send("charge_order", "mine", 500, id="reused")
    shop.wait_for("reused", "SUCCESS")
    shop.send("charge_order", "yours", 500, id="reused")
    assert shop.wait_for("reused", "FAILURE")[-1].is_refused("FAILURE", "was used for another call")
    assert (shop.charges("mine"), shop.charges("yours")) == (1, 0)


def test_killed_in_the_middle(shop: Shop) -> None:
    """SIGKILL for a process of the pool, before the effect and after it, wherever the effect is."""
    for order in ("outside-before", "outside-after"):
        hold_and_kill(shop, "charge_order", order, 500)
    for order in ("repeatable-before", "repeatable-after"):
        hold_and_kill(shop, "label_order", order, "1 Main Street")
    for order in ("database-before", "database-after"):
        hold_and_kill(shop, "reward_order", "ann", order, 10)

    # At most once.  What is not known is said to be unknown, and listed for an operator.
    for order, charged in (("outside-before", 0), ("outside-after", 1)):
        assert shop.wait_for(order, "FAILURE")[-1].is_refused("FAILURE", "what it did is not known")
        assert shop.charges(order) == charged
        assert shop.record(order).standing == "abandoned"
    settle(shop)
    # Done again.
    for order in ("repeatable-before", "repeatable-after"):
        assert shop.wait_for(order, "SUCCESS")[-1] == Run("SUCCESS", f"{order}.txt")
        assert shop.record(order).record.attempt == 2
    # Once.
    for order in ("database-before", "database-after"):
        assert shop.wait_for(order, "SUCCESS")[-1] == Run("SUCCESS", 10)
        assert shop.rewards(order) == 1


def settle(shop: Shop) -> None:
    """An operator looks at the books, says what is true, and has both tasks sent again with their ids."""
    shop.command("release", "outside-before", "--yes", "--reason", "it was not charged")
    shop.command("resolve", "outside-after", "--done", "--value", '"ch_1"', "--yes", "--reason", "charged")
    for order in ("outside-before", "outside-after"):
        shop.send("charge_order", order, 500, id=order)
    shop.wait_for("outside-before", "SUCCESS")
    assert shop.wait_for("outside-after", "SUCCESS")[-1] == Run("SUCCESS", "ch_1")
    assert (shop.charges("outside-before"), shop.charges("outside-after")) == (1, 1)


def hold_and_kill(shop: Shop, task: str, *arguments: str | int) -> None:
    """The message goes back to the queue, because of `task_reject_on_worker_lost`."""
    [order] = [one for one in arguments if isinstance(one, str) and "-" in one]
    place = f"{order.rpartition('-')[2]} {order}"
    shop.gates.close(place)
    shop.send(task, *arguments, id=order)
    os.kill(shop.wait_until_held(place), signal.SIGKILL)


@pytest.fixture
def pair(valkey: ValkeyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop of which one of two workers is to be lost."""
    with Shop(valkey.new_database(), tmp_path_factory.mktemp("pair")) as shop:
        yield shop


def test_a_machine_is_lost(pair: Shop) -> None:
    """SIGKILL for a whole worker: its message is visible to the other one after a while, and done once."""
    pair.start_worker(processes=1)
    pair.gates.close("after lost")
    pair.send("reward_order", "ann", "lost", 10, id="lost")
    pair.wait_until_held("after lost")
    pair.start_worker(processes=1)
    pair.kill_worker()
    pair.show_again()
    assert pair.wait_for("lost", "SUCCESS")[-1] == Run("SUCCESS", 10)
    assert pair.rewards("lost") == 1


@pytest.mark.full
def test_a_visibility_timeout_that_is_too_short(pair: Shop) -> None:
    """The workers show messages again by themselves, every second, for as long as a task takes."""
    for _ in range(2):
        pair.start_worker(processes=2, SHOP_VISIBILITY="1")
    pair.gates.close("after short")
    pair.send("charge_order", "short", 500, id="short")
    pair.wait_until_held("after short")
    pair.wait_for("short", "RETRY", times=3)
    pair.gates.open("after short")
    pair.wait_for("short", "SUCCESS", times=2)
    assert pair.charges("short") == 1
