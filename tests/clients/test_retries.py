"""Clients that retry by themselves, as the documentation has them, over a network that loses responses.

What is lost, in flight or not done yet is sent again, with the same key and the same bytes, and happens once.
What is final is not: each request that arrives is counted.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
import requests
import stamina
import urllib3

from retrysafe.testing.adapters.client import until
from retrysafe.testing.adapters.crash import DISCONNECTED
from retrysafe.testing.adapters.server import Server
from retrysafe.testing.adapters.suite import fresh
from tests.clients.network import Network, network
from tests.docs.running import story

BODY = b"{}"
JSON = {"Content-Type": "application/json"}
SLOW = 2000
"""Milliseconds: far more than a client takes to send its first request."""
USER = {"Authorization": "Bearer alice"}


def recipe(name: str) -> Any:
    """What the page defines."""
    return story("docs/clients.md").names[name]


class Got(NamedTuple):
    """What a client has in the end."""

    status: int
    body: object


# openai is imported where it is used: that takes long, and every process that runs tests imports this.


def by_openai(url: str, path: str, key: str) -> Got:
    import openai

    with openai.OpenAI(base_url=url, api_key="alice", max_retries=5) as sdk:
        try:
            found = sdk.post(path, cast_to=object, body={}, options={"headers": {"Idempotency-Key": key}})
        except openai.APIStatusError as error:
            return Got(error.status_code, error.body)
        return Got(201, found)


def by_async_openai(url: str, path: str, key: str) -> Got:
    import openai

    async def send() -> Got:
        async with openai.AsyncOpenAI(base_url=url, api_key="alice", max_retries=5) as sdk:
            options: Any = {"headers": {"Idempotency-Key": key}}
            try:
                return Got(201, await sdk.post(path, cast_to=object, body={}, options=options))
            except openai.APIStatusError as error:
                return Got(error.status_code, error.body)

    return asyncio.run(send())


def by_httpx(url: str, path: str, key: str) -> Got:
    with httpx.Client() as client:
        try:
            found = recipe("post_with_httpx")(client, url + path, BODY, key, **USER)
        except httpx.HTTPStatusError as error:
            found = error.response
        return Got(found.status_code, found.json())


def by_requests(url: str, path: str, key: str) -> Got:
    with recipe("session") as session:
        headers = {**JSON, **USER, "Idempotency-Key": key}
        found: requests.Response = session.post(url + path, BODY, headers=headers, timeout=20)
        return Got(found.status_code, found.json())


def by_urllib3(url: str, path: str, key: str) -> Got:
    with urllib3.PoolManager(retries=recipe("retry")) as pool:
        headers = {**JSON, **USER, "Idempotency-Key": key}
        found = pool.request("POST", url + path, body=BODY, headers=headers)
        return Got(found.status, found.json())


Client = Callable[[str, str, str], Got]
CLIENTS: list[Client] = [by_openai, by_async_openai, by_httpx, by_requests, by_urllib3]
PRECISE: list[Client] = [by_openai, by_async_openai]
"""Those that read `retry-after-ms`."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("clients")
    found = Server("fastapi", f"sqlite:///{folder / 'keys.db'}", folder / "effects", lease=1)
    yield found
    found.kill()


@pytest.fixture(scope="module")
def between(server: Server) -> Iterator[Network]:
    with network(server.port) as found:
        yield found


@pytest.fixture
def net(between: Network) -> Network:
    between.forget()
    return between


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where no server says how long to wait."""
    import openai

    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.05)
    monkeypatch.setattr(recipe("retry"), "backoff_factor", 0.02)
    monkeypatch.setattr(recipe("retry"), "backoff_jitter", 0.0)


@pytest.fixture(params=CLIENTS, ids=lambda client: client.__name__)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


def test_a_lost_response(server: Server, net: Network, client: Client) -> None:
    """Twice: the charge was made, and its client learns so by the third response, which is a replay."""
    key, label = fresh(), fresh("label")
    net.losses = 2
    got = client(net.url, f"/charges?label={label}", key)
    assert (got.status, net.statuses) == (201, [201, 201, 201])
    assert [each.replayed for each in net.exchanged] == [False, True, True]
    assert {(each.key or "").strip('"') for each in net.exchanged} == {key}
    assert {each.body for each in net.exchanged} == {BODY}
    assert server.effects(label) == 1


def test_in_flight(server: Server, net: Network, client: Client) -> None:
    """It waits as long as it is told, and gets the replay."""
    key, label = fresh(), fresh("label")
    path = f"/slow?ms={SLOW}&label={label}"

    def first() -> Any:
        return server.post("/slow", ms=SLOW, label=label, fields=[("Idempotency-Key", key)], json_body={})

    running = server.at_work(first, label)
    got = client(net.url, path, key)
    assert (got.status, got.body) == (201, running.result().document)
    *refused, last = net.exchanged
    assert last.replayed
    assert {each.status for each in refused} == {409}
    for earlier, later in zip(net.exchanged, net.exchanged[1:], strict=False):
        told = float(earlier.told["retry-after-ms"]) / 1000
        if client not in PRECISE:
            told = float(earlier.told["retry-after"])
        assert later.at - earlier.at >= told
    assert server.effects(label) == 1


def test_not_done(server: Server, net: Network, client: Client) -> None:
    """A 503 that says so is sent again when it says, and then it runs."""
    key, label = fresh(), fresh("label")
    got = client(net.url, f"/notdone?times=1&label={label}", key)
    assert (got.status, net.statuses, server.effects(label)) == (201, [503, 201], 1)


def test_a_key_that_was_used(server: Server, net: Network, client: Client) -> None:
    """422 is final."""
    key, label = fresh(), fresh("label")
    server.post("/charges", label=label, fields=[("Idempotency-Key", key)], json_body={"other": 1})
    got = client(net.url, f"/charges?label={label}", key)
    assert (got.status, net.statuses, server.effects(label)) == (422, [422], 1)


def test_a_stored_failure(server: Server, net: Network, client: Client) -> None:
    """A 500 is final from its first response on: a retry would only get it again."""
    key, label = fresh(), fresh("label")
    for times in (1, 2):
        assert client(net.url, f"/status/500?label={label}", key).status == 500
        assert net.statuses == [500] * times
    assert [each.replayed for each in net.exchanged] == [False, True]
    assert server.effects(label) == 1


class Unknown(NamedTuple):
    path: str
    key: str
    label: str


@pytest.fixture(scope="module")
def unknown(server: Server, between: Network) -> Unknown:
    """A request whose server was killed, when its lease has ended."""
    key, label = fresh(), fresh("label")

    def send() -> Any:
        return server.post("/crash", label=label, fields=[("Idempotency-Key", key)], json_body={})

    with pytest.raises(DISCONNECTED):
        send()
    server.revive()
    between.upstream = server.port
    until(lambda: send().code == "outcome-unknown")
    return Unknown(f"/crash?label={label}", key, label)


def test_an_unknown_outcome(server: Server, unknown: Unknown, net: Network, client: Client) -> None:
    """A 409 too, and final: the same status as one that is to be sent again."""
    got = client(net.url, unknown.path, unknown.key)
    assert (got.status, net.statuses, server.effects(unknown.label)) == (409, [409], 1)


def test_openai_sends_no_key_by_itself(server: Server, net: Network) -> None:
    """As the page says: what is lost is charged again."""
    import openai

    label = fresh("label")
    net.losses = 1
    with openai.OpenAI(base_url=net.url, api_key="alice", max_retries=5) as sdk:
        sdk.post(f"/charges?label={label}", cast_to=object, body={})
    assert [each.key for each in net.exchanged] == [None, None]
    assert server.effects(label) == 2


def test_urllib3_retries_no_post_by_itself(server: Server, net: Network) -> None:
    """As the page says: the method has to be allowed."""
    net.losses = 1
    headers = {**JSON, **USER, "Idempotency-Key": fresh()}
    with (
        urllib3.PoolManager(retries=urllib3.Retry(3)) as pool,
        pytest.raises(urllib3.exceptions.ProtocolError),
    ):
        pool.request("POST", net.url + "/charges", body=BODY, headers=headers)
    assert net.statuses == [201]


def test_a_list_of_statuses_wastes_retries(unknown: Unknown, net: Network) -> None:
    """Why 409 does not belong in `status_forcelist`: an unknown outcome stays one."""
    listed = urllib3.Retry(2, allowed_methods=None, status_forcelist={409}, raise_on_status=False)
    headers = {**JSON, **USER, "Idempotency-Key": unknown.key}
    with urllib3.PoolManager(retries=listed) as pool:
        pool.request("POST", net.url + unknown.path, body=BODY, headers=headers)
    assert net.statuses == [409] * 3


def test_stamina_stops_in_time(net: Network) -> None:
    """Not one client retries for ever."""
    net.losses = 100
    with (
        httpx.Client() as client,
        stamina.set_testing(True, attempts=3),
        pytest.raises(httpx.TransportError),
    ):
        recipe("post_with_httpx")(client, net.url + "/charges", BODY, fresh(), **USER)
    net.losses = 0
    assert net.statuses == [201] * 3
