"""Profiles as data: which there are, what overrides what, and how mistakes are said."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from retrysafe import ConfigurationError, Guard, Wire, profiles, scopes
from retrysafe.policy import DAY, HOUR, MIB, compile_rules
from retrysafe.profiles import PROFILES, Profile
from tests.profiles.conftest import Serve
from tests.profiles.service import Answer, Call

PAGE = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")
TTL = {"erp": "IDEMPOTENCY_TTL_HOURS", "validation-api": "IDEMPOTENCY_KEY_TTL_HOURS"}


def a_guard(profile: str | Profile | None, **said: object) -> Guard:
    return Guard("memory:", scope=scopes.user, profile=profile, **said)  # type: ignore[arg-type]  # any option


RETENTION = {"workflow-control": 7 * DAY, "job-callbacks": 30 * DAY}
"""Of profiles whose keys last longer than a day."""


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_a_profile_is_valid_data(profile: Profile) -> None:
    """Its wire and its options are such as a user could have given, and it is found by its name."""
    rules = compile_rules({"scope": scopes.user, **profile.options}, profile.wire)
    controls = profile.name == "workflow-control"
    assert rules.policy.retention == RETENTION.get(profile.name, DAY)
    assert rules.outcome.max_response == MIB
    assert rules.wire.longest_key == (200 if controls else 255)
    assert rules.policy.failed == ("conflict" if controls else "replay")
    assert profiles.get(profile.name) is profile
    assert profiles.wire(profile.name) is profile.wire
    assert a_guard(profile.name).profile is profile


def test_no_profile() -> None:
    """The library's own defaults, and `guard.profile` says so."""
    guard = a_guard(None)
    assert (guard.profile, guard.wire) == (None, Wire())


@pytest.mark.parametrize("name", ["stripes", "", "ERP"])
def test_an_unknown_profile(name: str) -> None:
    """The message names those that there are."""
    with pytest.raises(ConfigurationError) as raised:
        a_guard(name)
    assert repr(name) in str(raised.value)
    assert all(known in str(raised.value) for known in PROFILES)


@pytest.mark.parametrize(("profile", "variable"), TTL.items())
def test_the_environment_overrides_a_profile(
    profile: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-21, 001-27, 000-17: operators tune the retention without a change of code."""
    assert a_guard(profile).rules.policy.retention == 24 * HOUR
    monkeypatch.setenv(variable, " 48 ")
    assert a_guard(profile).rules.policy.retention == 48 * HOUR
    monkeypatch.setenv(variable, "0.5")
    assert a_guard(profile).rules.policy.retention == 0.5 * HOUR
    for other in set(PROFILES) - {profile}:
        assert a_guard(other).rules.policy.retention == RETENTION.get(other, DAY)


@pytest.mark.parametrize(("profile", "variable"), TTL.items())
def test_a_keyword_overrides_both(profile: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the code says counts; a variable that it overrides is not read."""
    monkeypatch.setenv(variable, "48")
    assert a_guard(profile, retention="7d").rules.policy.retention == 7 * DAY
    monkeypatch.setenv(variable, "a day")
    assert a_guard(profile, retention="7d").rules.policy.retention == 7 * DAY


@pytest.mark.parametrize(
    "text", ["", "a day", "24h", "-1", "0", "0.0", "nan", "inf", "1e3", "24,5", "9" * 30]
)
@pytest.mark.parametrize(("profile", "variable"), TTL.items())
def test_a_wrong_value_in_the_environment(
    profile: str, variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the variable, what was found and what was expected."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError) as raised:
        a_guard(profile)
    for part in (variable, repr(text), "a number of hours greater than zero", profile):
        assert part in str(raised.value)


def test_a_wire_replaces_that_of_the_profile() -> None:
    """As a whole; one field is changed by what the profile's wire is replaced with."""
    assert a_guard("erp", wire=Wire()).wire == Wire()
    changed = profiles.wire("erp")._replace(tombstone="empty-200")
    guard = a_guard("erp", wire=changed)
    assert guard.wire == changed
    assert guard.wire.echo_key
    assert profiles.wire("erp").tombstone == "status"


def test_what_effects_imply_counts_over_a_profile() -> None:
    """A profile's `failed="replay"` is a default: effects that are repeatable are retried, as ever."""
    assert a_guard("agents").rules.policy.failed == "replay"
    assert a_guard("agents", effects="repeatable").rules.policy.failed == "retry"
    assert a_guard("agents").compile({"effects": "repeatable"}).policy.abandoned == "retry"


def test_a_profile_of_ones_own(serve: Serve) -> None:
    """It is a value: a guard takes one that is not among ours."""
    ours = profiles.get("agents")._replace(name="ours", paths=("/v2/*",), options={"retention": HOUR})
    service = serve(ours)
    assert service.guard.profile == ours
    assert service.guard.rules.policy.retention == HOUR
    for path, runs in (("/v2/act", 1), ("/api/act", 3)):
        for _ in range(2):
            service.post(path, key="k")
        assert len(service.runs) == runs


@pytest.mark.parametrize("profile", PROFILES)
def test_users_share_nothing(serve: Serve, profile: str) -> None:
    """002-12: the same request with the same key from two users is two runs, with no byte in common."""
    service = serve(profile)
    replies = [service.post(key="same-key", user=user) for user in ("alice", "bob", "alice", "bob")]
    assert len(service.runs) == 2
    assert [reply.body for reply in replies] == [b'{"charge": 1}', b'{"charge": 2}'] * 2
    for mine, other in pairwise(replies):
        assert mine.body not in other.body
        assert _ids(mine).isdisjoint(_ids(other))


def _ids(reply: object) -> set[str]:
    return {value for name, value in reply.fields if "request" in name}  # type: ignore[attr-defined]  # a reply


@pytest.mark.parametrize("profile", PROFILES)
def test_without_a_user_there_is_no_shared_scope(serve: Serve, profile: str) -> None:
    """002's table had one row per key, and no owner in its identity; here a key without one is refused."""
    service = serve(profile)
    reply = service.post(key="k", user=None)
    assert (reply.status, len(service.runs)) == (400, 0)


@pytest.mark.parametrize("profile", PROFILES)
def test_bytes_are_kept_as_bytes(serve: Serve, profile: str) -> None:
    """What 001 and 002 stored as JSON came back as other bytes; 002-27: stored as it is."""
    odd = b'{"b": 1.0,   "a": "\xc3\xa9", "a": 2}\n\x00\xff'

    async def answer(call: Call) -> Answer:
        return Answer(200, odd)

    service = serve(profile, answer)
    assert [service.post(key="k").body for _ in range(2)] == [odd, odd]
    assert len(service.runs) == 1


@pytest.mark.parametrize("profile", ["erp", "agents"])
def test_bodies_are_compared_unless_the_original_is_wanted(serve: Serve, profile: str) -> None:
    """Neither original compared them.  Ours does; `fingerprint=None` is as it was."""
    for said, status, runs in (({}, 422, 1), ({"fingerprint": None}, 201, 1)):
        service = serve(profile, **said)
        service.post(key="k", body=b'{"amount": 1}')
        assert service.post(key="k", body=b'{"amount": 2}').status == status
        assert len(service.runs) == runs


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_profiles_are_documented(profile: Profile) -> None:
    """Each has a row and a section, with its variables and every header and status that it changes."""
    assert f"| [`{profile.name}`](#" in PAGE
    section = PAGE.partition(f"\n## `{profile.name}`")[2].partition("\n## ")[0]
    assert f'profile="{profile.name}"' in section
    assert all(f"`{name}`" in section for name in profile.environment)
    for field, default in Wire._field_defaults.items():
        value = getattr(profile.wire, field)
        if field.endswith("_header") and value != default:
            assert f"`{value}" in section, value
        if field == "statuses":
            assert all(re.search(rf"\b{status}\b", section) for status in value.values())
