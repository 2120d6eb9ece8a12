"""A check that cannot check anything is refused, and does not pass."""

from typing import Any

import pytest

from retrysafe.stores.memory import MemoryStore
from retrysafe.testing.simulate import SETTINGS, Bound, Setting, Stage, search, simulate
from retrysafe.testing.simulate.setting import TX
from retrysafe.testing.simulate.sqlite import emptied


@pytest.mark.parametrize("schedules", [0, -5])
def test_no_schedules(schedules: int) -> None:
    with pytest.raises(ValueError, match=f"schedules must be 1 or more, got {schedules}"):
        simulate(schedules=schedules)


def test_no_settings() -> None:
    with pytest.raises(ValueError, match="settings is empty: expected at least one"):
        simulate(settings=())


def test_settings_with_the_same_name() -> None:
    with pytest.raises(ValueError, match="more than one of the settings is called 'hold'"):
        simulate(settings=[Setting(), Setting(abandoned="retry")])


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"mode": "zz"}, r"Setting\(mode='zz'\) is not valid: expected one of 'lease', 'tx'"),
        (
            {"handler": "nonsense"},
            r"Setting\(handler='nonsense'\) is not valid: expected one of 'succeeds', ",
        ),
        ({"reauthorise": "always"}, r"Setting\(reauthorise='always'\) is not valid"),
        ({"abandoned": "zz"}, "abandoned='zz' is not a choice: it is one of 'hold', 'retry'"),
        ({"failed": "zz"}, "failed='zz' is not a choice"),
        ({"in_flight": "zz"}, "in_flight='zz' is not a choice"),
        ({"store_down": "zz"}, "store_down='zz' is not a choice"),
        ({"name": ""}, "a Setting has an empty name"),
        ({"store": MemoryStore()}, "cannot be called: expected a function that is given a clock"),
        ({"mode": "tx"}, 'both must be "retry"'),
        ({**TX._asdict(), "handler": "streams"}, "handlers of transactions do not stream"),
    ],
)
def test_a_setting_that_makes_no_sense(fields: dict[str, Any], complaint: str) -> None:
    """For random schedules and for a search alike."""
    with pytest.raises(ValueError, match=complaint):
        simulate(schedules=1, settings=[Setting(**fields)])
    with pytest.raises(ValueError, match=complaint):
        search(Stage(Setting(**fields)), Bound(attempts=1))


def test_a_store_where_a_function_is_expected() -> None:
    store: Any = MemoryStore()
    with pytest.raises(ValueError, match="such as a store's class"):
        simulate(store, schedules=1)


def test_one_store_for_all_worlds_of_a_search() -> None:
    """It would go on in worlds whose store was emptied for another one."""
    with pytest.raises(ValueError, match="the same object for two worlds"):
        search(Stage(SETTINGS[0]._replace(store=emptied)), Bound(attempts=2))
