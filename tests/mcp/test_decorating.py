"""`idempotent`: what it refuses at once, and what it makes of keys, owners, arguments and results."""

import asyncio
import inspect
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import mcp_types as types
import pytest
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from retrysafe import Guard, scopes
from retrysafe.errors import ConfigurationError, NotDone
from retrysafe.operations.mcp import META_KEY, ToolCall, idempotent_calls, lifespan
from retrysafe.operations.tool_calls.words import REPLAYED
from retrysafe.sqlite3 import connection
from retrysafe.stores.admin import Query
from tests.mcp.connections import outcome, texts
from tests.mcp.libraries import LIBRARIES, Library


@pytest.fixture(params=sorted(LIBRARIES))
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]()


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard("memory:", scope=scopes.service("billing"))
    yield made
    made.close()


class Counter:
    """How often a tool has run, and with what."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __call__(self, *seen: object) -> int:
        self.seen.append(seen)
        return len(self.seen)


# --- what is refused when it is built


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": "not a name"}, "expected the name of an argument"),
        ({"key": "_hidden"}, "expected the name of an argument"),
        ({"meta_key": "idempotencyKey"}, "a prefix in reverse DNS notation"),
        ({"meta_key": 5}, "a prefix in reverse DNS notation"),
        ({"meta_key": "io.modelcontextprotocol/key"}, "reserved for MCP"),
        ({"meta_key": "dev.mcp/key"}, "reserved for MCP"),
        ({"required": "yes"}, 'expected True, False or "warn"'),
        ({"scope": scopes.header("X-Tenant")}, "the header X-Tenant says whose key it is"),
        ({"scope": ""}, "names no owner"),
        ({"fingerprint": None}, "fingerprint is not an option of operations"),
        ({"failed": "sometimes"}, "failed='sometimes'"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    library: Library, guard: Guard, options: dict[str, Any], says: str
) -> None:
    """With what was found and what is expected."""
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        library.idempotent(guard, **options)


def test_a_prefix_of_ones_own_is_taken(library: Library, guard: Guard) -> None:
    """`mcp` is reserved as the second label, and nowhere else."""
    for name in ("com.example.mcp/key", "com.example/idempotency.key", "example/k"):
        assert library.idempotent(guard, meta_key=name).meta["io.retrysafe/idempotency"]["metaKey"] == name


def test_a_guard_for_requests_has_no_owner_for_calls(library: Library) -> None:
    """A header is not guessed to be anything else."""
    guard = Guard("memory:", scope=lambda request: request.path)
    with pytest.raises(ConfigurationError, match="a tool call has no such thing"):
        library.idempotent(guard)
    assert library.idempotent(guard, scope="7") is not None
    guard.close()


def test_only_functions_of_tools_are_decorated(library: Library, guard: Guard) -> None:
    """Not generators, nor what takes any arguments, nor what has the key's parameter itself."""
    decorate = library.idempotent(guard, key="key")

    def generator() -> Iterator[int]:
        yield 1

    def any_arguments(**arguments: int) -> int:
        return len(arguments)

    def own_key(key: str) -> str:
        return key

    for function, says in (
        (generator, "is a generator"),
        (any_arguments, "a parameter for each of its arguments"),
        (own_key, "has a parameter 'key'"),
        (5, "expected a function"),
        (Counter(), "expected a function"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            decorate(function)


def test_the_hint_is_true_where_the_key_is_a_required_argument(library: Library, guard: Guard) -> None:
    """It is about calls with the same arguments; other hints are passed on, and it cannot be overridden."""
    make = library.idempotent
    assert make(guard, key="key", required=True).hints().idempotent_hint is True
    assert make(guard, key="key").hints().idempotent_hint is False
    assert make(guard, required=True).hints(destructive_hint=True) == types.ToolAnnotations(
        idempotent_hint=False, destructive_hint=True
    )
    assert make(guard, key="key", required=True, store_down="run").hints().idempotent_hint is False
    with pytest.raises(ConfigurationError, match="follows from how the tool takes its key"):
        make(guard).hints(idempotent_hint=True)


def test_a_scope_that_cannot_be_found_is_refused(library: Library, guard: Guard) -> None:
    """An argument that the function does not have, and a coroutine function for a plain one."""

    async def by_call(call: ToolCall) -> str:
        return "7"

    def charge(account: str) -> int:
        return 1

    with pytest.raises(ConfigurationError, match="charge has no such parameter, it has account"):
        library.idempotent(guard, scope=scopes.argument("acount"))(charge)
    with pytest.raises(ConfigurationError, match="its scope function is asynchronous"):
        library.idempotent(guard, scope=by_call)(charge)


def test_low_level_tools_are_named_with_what_makes_them_safe(guard: Guard) -> None:
    """`idempotent_calls` takes nothing else, and adds the key to schemas that are written by hand."""
    wrong: Any = {"charge": guard}
    with pytest.raises(ConfigurationError, match="expected what idempotent"):
        idempotent_calls(wrong)
    make = LIBRARIES["mcp"]().idempotent
    schema = {"properties": {"order": {}}, "required": ["order"]}
    assert make(guard).input_schema(schema) == schema
    assert make(guard, key="key").input_schema(schema)["required"] == ["order"]
    with_key = make(guard, key="key", required=True).input_schema(schema)
    assert with_key["required"] == ["order", "key"]
    assert set(with_key["properties"]) == {"order", "key"}
    assert schema == {"properties": {"order": {}}, "required": ["order"]}


# --- keys


def test_a_function_that_no_client_calls_is_what_it_was(library: Library, guard: Guard) -> None:
    """Tests and other code call it without a key, even where it is required; one cannot be passed there."""
    decorate = library.idempotent(guard, key="key", required=True)

    @decorate  # type: ignore[untyped-decorator]  # either library's
    def double(number: int) -> int:
        return 2 * number

    @decorate  # type: ignore[untyped-decorator]  # either library's
    async def later(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    assert asyncio.run(later(4)) == 8
    called: Any = double
    with pytest.raises(ConfigurationError, match="outside of a tool call"):
        called(4, key="k")
    assert inspect.iscoroutinefunction(later)


def test_a_required_key_in_meta_is_asked_for_in_words(library: Library, guard: Guard) -> None:
    """The model is told where it belongs, and nothing was done."""
    server, count = library.server(), Counter()

    @library.tool(server, guard, required=True)
    def charge() -> int:
        return count()

    (refused,) = library.call(server, "charge", {}, None)
    assert refused.is_error
    assert outcome(refused) == {"code": "key-missing", "retry": None}
    assert f"Send a key in the _meta of the call, as {META_KEY}" in texts(refused)[0]
    assert count.seen == []


def test_keyless_calls_are_counted_where_keys_are_wanted(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    """`required="warn"` serves them, and says so once in the log; the guard's own choice is the default."""
    guard = Guard("memory:", scope=scopes.service("billing"), required="warn")
    server, count = library.server(), Counter()

    @library.tool(server, guard)
    def charge() -> int:
        return count()

    assert [result.is_error for result in library.call(server, "charge", {}, None, None)] == [False, False]
    assert [(ended.door, times) for ended, times in guard.counts().items() if ended.verdict == "keyless"] == [
        ("operation", 2)
    ]
    assert caplog.text.count("without a key was served") == 1
    guard.close()


def test_two_different_keys_are_no_key(library: Library, guard: Guard) -> None:
    """One in the argument and another one in `_meta`: which of them is meant is not guessed."""
    server, count = library.server(), Counter()

    @library.tool(server, guard, key="key")
    def charge() -> int:
        return count()

    (refused,) = library.call(server, "charge", {"key": "a"}, "b")
    assert outcome(refused)["code"] == "key-invalid"
    assert "one key in the argument key and a different one in _meta" in texts(refused)[0]
    same = library.call(server, "charge", {"key": "a"}, "a", " a ", None)
    assert [outcome(result)["replayed"] for result in same] == [False, True, True]


@pytest.mark.parametrize("key", ["null", "[1]", '{"a": 1}', "5", "true", " k "])
def test_keys_that_look_like_something_else_are_keys(library: Library, guard: Guard, key: str) -> None:
    """A string is a key, even if it could be read as JSON; white space around it is not part of it."""
    server, count = library.server(), Counter()

    @library.tool(server, guard, key="key")
    def charge() -> int:
        return count()

    results = library.call(server, "charge", {"key": key}, None, None)
    results += library.call(server, "charge", {}, key.strip())
    assert [outcome(result)["replayed"] for result in results] == [False, True, True]


# --- owners


def test_without_a_client_no_owner_is_guessed(library: Library) -> None:
    """Where the server authenticates no client, as over stdio, a guard that asks for one refuses."""
    guard = Guard("memory:", scope=scopes.user)
    server, count = library.server(), Counter()

    @library.tool(server, guard)
    def charge() -> int:
        return count()

    (refused,) = library.call(server, "charge", {}, "key")
    assert outcome(refused) == {"code": "principal-required", "retry": None}
    assert "its code has to say whose keys they are" in texts(refused)[0]
    assert count.seen == []
    guard.close()


def test_an_owner_may_be_found_in_the_call(library: Library, guard: Guard) -> None:
    """By a function of it, plain or asynchronous, or by an argument: each owner has keys of its own."""
    seen: list[ToolCall] = []

    def by_call(call: ToolCall) -> str:
        seen.append(call)
        return str(call.arguments["account"])

    async def by_call_later(call: ToolCall) -> str:
        return by_call(call)

    server, count = library.server(), Counter()
    for name, scope in (
        ("plain", by_call),
        ("asynchronous", by_call_later),
        ("argument", scopes.argument("account")),
    ):

        async def charge(account: str) -> int:
            return count(account)

        decorate = library.idempotent(guard, scope=scope, ignore=("account",))
        server.tool(name=name)(decorate(charge))
        results = [library.call(server, name, {"account": one}, f"{name} key")[0] for one in ("a", "b", "a")]
        assert [outcome(result)["replayed"] for result in results] == [False, False, True]
    assert count.seen == [("a",), ("b",)] * 3
    assert seen[0].meta[META_KEY] == "plain key"
    assert seen[0].token is None


def test_an_owner_is_the_subject_of_a_token() -> None:
    """Users of one client are told apart, also where a verifier only passes on the claims of their tokens."""
    from mcp.server.auth.provider import AccessToken

    rule = LIBRARIES["mcp"]().idempotent(Guard("memory:", scope=scopes.user)).rule

    def owner(**found: Any) -> Any:
        token = AccessToken(token="secret", client_id="desktop", scopes=[], **found)
        return rule.find_owner(ToolCall("charge", {}, {}, token, None))

    ann = {"client": "desktop", "issuer": "https://example.com", "subject": "ann"}
    assert owner(claims={"iss": "https://example.com", "sub": "ann"}) == ann
    assert owner(claims={"iss": "https://example.com", "sub": "bob"}, subject="ann") == ann
    assert owner() == {"client": "desktop"}


def test_low_level_calls_have_owners_and_targets() -> None:
    """Of their arguments, ignored ones too; a call that lacks the argument for the target is served."""
    from mcp.client import Client
    from mcp.server.lowlevel import Server

    guard, seen = Guard("memory:", scope=scopes.service("billing")), Counter()
    make = LIBRARIES["mcp"]().idempotent
    by_account = make(guard, scope=scopes.argument("account"), target="order", ignore=("account", "order"))

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="charge", input_schema={"type": "object"})])

    @idempotent_calls({"charge": by_account})
    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        seen(params.arguments)
        return types.CallToolResult(content=[])

    async def call() -> list[types.CallToolResult]:
        meta: Any = {META_KEY: "key"}
        async with Client(Server("test", on_list_tools=list_tools, on_call_tool=call_tool)) as client:
            return [
                await client.call_tool("charge", arguments, meta=meta)
                for arguments in (
                    {"account": "a", "order": "o"},
                    {"account": "a", "order": "o"},
                    {"account": "b"},
                    {},
                )
            ]

    results = [outcome(result) for result in asyncio.run(call())]
    assert [result.get("replayed") for result in results] == [False, True, False, None]
    assert results[-1]["code"] == "principal-required"
    assert seen.seen == [({"account": "a", "order": "o"},), ({"account": "b"},)]
    admin = guard.store.open_admin()
    assert {found.record.target for found in admin.find(Query(), 10)} == {"o", ""}
    admin.close()
    guard.close()


def test_public_keys_have_to_be_long(library: Library) -> None:
    """Where all clients share their keys, one that can be guessed is refused."""
    guard = Guard("memory:", scope=scopes.public())
    server, count = library.server(), Counter()

    @library.tool(server, guard)
    def charge() -> int:
        return count()

    results = library.call(server, "charge", {}, "short", "k" * 16)
    assert outcome(results[0])["code"] == "key-invalid"
    assert outcome(results[1])["replayed"] is False
    guard.close()


# --- arguments


class Line(BaseModel):
    name: str
    tags: list[str] = Field(default_factory=list)


def test_arguments_are_compared_as_the_tool_gets_them(library: Library, guard: Guard) -> None:
    """A default that is spelled out and a number in a string are the same call; another line is not."""
    server, count = library.server(), Counter()

    @library.tool(server, guard, target="lines")
    def charge(
        lines: list[Line],
        amount: Annotated[int, Field(gt=0)] = 1,
        note: str | None = Field(None, description="For the invoice."),
        labels: list[str] = Field(default_factory=list),  # noqa: B008 - as pydantic has it
    ) -> int:
        return count(lines, amount, note, labels)

    def call(**arguments: Any) -> Any:
        return outcome(library.call(server, "charge", arguments, "key")[0])

    assert call(lines=[{"name": "a"}])["replayed"] is False
    assert call(lines=[{"name": "a", "tags": []}], amount=1)["replayed"] is True
    assert call(lines=[{"name": "a"}], amount="1", note=None, labels=[])["replayed"] is True
    assert call(lines=[{"name": "b"}])["code"] == "key-reused"
    assert call(lines=[{"name": "a"}], note="b")["code"] == "key-reused"
    assert len(count.seen) == 1


def test_refused_arguments_leave_the_key_free(library: Library, guard: Guard) -> None:
    """The library validates before a key is claimed: the model corrects its call, and keeps the key."""
    server, count = library.server(), Counter()

    @library.tool(server, guard)
    def charge(amount: int) -> int:
        return count(amount)

    (refused,) = library.call(server, "charge", {"amount": "much"}, "key")
    assert refused.is_error
    (corrected,) = library.call(server, "charge", {"amount": 5}, "key")
    assert outcome(corrected) == {"replayed": False, "attempt": 1, "stored": True}


def test_what_a_library_fills_in_is_not_compared(library: Library, guard: Guard) -> None:
    """Of a context there is a new one for each call: the function gets it, and the retry is still a retry."""
    server, count = library.server(), Counter()

    @library.tool(server, guard)
    async def charge(order: str, ctx: Any) -> int:
        return count(order, type(ctx))

    results = library.call(server, "charge", {"order": "a"}, "key", "key")
    assert [outcome(result)["replayed"] for result in results] == [False, True]
    assert count.seen == [("a", library.context)]


def test_dependencies_are_not_compared(guard: Guard) -> None:
    """Nor are those of FastMCP, which are resolved before the key is claimed."""
    from fastmcp.dependencies import Depends

    library, count = LIBRARIES["fastmcp"](), Counter()
    server = library.server()

    @library.tool(server, guard)
    async def charge(order: str, database: object = Depends(object)) -> int:
        return count(order, type(database))

    results = library.call(server, "charge", {"order": "a"}, "key", "key")
    assert [outcome(result)["replayed"] for result in results] == [False, True]
    assert count.seen == [("a", object)]


def test_a_call_need_not_have_a_target(library: Library, guard: Guard) -> None:
    """It is for operators: a model that leaves the argument out, or empty, is served as without a key."""
    server = library.server()

    @library.tool(server, guard, target="order")
    def charge(order: str | None = None) -> str:
        return "charged"

    for key, arguments in (("left out", {}), ("empty", {"order": ""})):
        results = library.call(server, "charge", arguments, key, key)
        assert [outcome(result)["replayed"] for result in results] == [False, True]


def test_methods_are_tools_too(library: Library, guard: Guard) -> None:
    """The instance is not an argument."""
    decorate = library.idempotent(guard, key="key", required=True)

    class Billing:
        def __init__(self) -> None:
            self.count = Counter()

        @decorate  # type: ignore[untyped-decorator]  # either library's
        def charge(self, order: str) -> int:
            """Charge an order."""
            return self.count(order)

    server, billing = library.server(), Billing()
    server.tool()(billing.charge) if library.name == "fastmcp" else server.add_tool(billing.charge)
    results = library.call(server, "charge", {"order": "a", "key": "k"}, None, None)
    assert [outcome(result)["replayed"] for result in results] == [False, True]
    assert billing.count.seen == [("a",)]


def test_annotations_may_be_strings(library: Library, guard: Guard) -> None:
    """As `from __future__ import annotations` makes them: names are those of the function's own module."""
    server, count = library.server(), Counter()

    @library.tool(server, guard, key="key")
    def charge(lines: "list[Line]", note: "str | None" = None) -> "Line":
        count()
        return lines[0]

    results = library.call(server, "charge", {"lines": [{"name": "a"}], "key": "k"}, None, None)
    assert [result.structured_content for result in results] == [{"name": "a", "tags": []}] * 2
    assert [outcome(result)["replayed"] for result in results] == [False, True]
    assert len(count.seen) == 1


# --- results


class Invoice(BaseModel):
    """What cannot be made again of the JSON that it is written as."""

    model_config = ConfigDict(strict=True)
    due: date
    total: Annotated[Decimal, PlainSerializer(lambda total: f"{total:.2f}", return_type=str)]


def test_results_need_not_be_valid_as_json(library: Library, guard: Guard) -> None:
    """A result is validated when it is made, and its JSON is not validated as if it were Python: the model is
    strict, or has serializers of its own.  The schema that is published stays the same."""
    plain, server, count = library.server(), library.server(), Counter()

    def bill() -> list[Invoice]:
        count()
        return [Invoice(due=date(2026, 1, 1), total=Decimal(5))]

    async def bill_later(ctx: Any) -> list[Invoice]:
        return bill()

    bill_later.__annotations__["ctx"] = library.context
    for function in (bill, bill_later):
        plain.tool()(function)
        server.tool()(library.idempotent(guard)(function))
        results = library.call(server, function.__name__, {}, None, function.__name__, function.__name__)
        assert [result.structured_content for result in results] == [
            {"result": [{"due": "2026-01-01", "total": "5.00"}]}
        ] * 3
    assert len(count.seen) == 4

    async def schemas(of: Any) -> list[Any]:
        async with library.connect(of) as client:
            listed = await client.list_tools()
            return [tool.output_schema for tool in getattr(listed, "tools", listed)]

    assert asyncio.run(schemas(server)) == asyncio.run(schemas(plain))


def test_other_code_gets_what_the_function_returns(guard: Guard) -> None:
    """A tool that calls another one as a function, with its own context, gets no result of the protocol."""
    library, count = LIBRARIES["mcp"](), Counter()
    server = library.server()

    @library.tool(server, guard, required=True)
    async def charge(order: str, ctx: Any) -> Line:
        count(order)
        return Line(name=order)

    @library.tool(server, guard)
    async def charge_all(ctx: Any) -> str:
        return ",".join([(await charge(order, ctx=ctx)).name for order in ("a", "b")])

    results = library.call(server, "charge_all", {}, None, "key", "key")
    assert [result.structured_content for result in results] == [{"result": "a,b"}] * 3
    assert len(count.seen) == 4


def test_tools_that_a_tool_calls_are_a_part_of_it(library: Library, guard: Guard) -> None:
    """The client's key is that of the tool it has named, and of no other."""
    server, count = library.server(), Counter()

    @library.tool(server, guard, required=True)
    async def charge(order: str) -> int:
        return count(order)

    @library.tool(server, guard, required=True)
    async def charge_all(ctx: Any) -> int:
        for order in ("a", "b"):
            more = () if library.name == "fastmcp" else (ctx,)
            result = await server.call_tool("charge", {"order": order}, *more)
            assert not result.is_error
        return len(count.seen)

    results = library.call(server, "charge_all", {}, "key", "key")
    assert [result.structured_content for result in results] == [{"result": 2}] * 2
    assert count.seen == [("a",), ("b",)]


def test_a_tool_that_is_a_client_has_keys_of_its_own(library: Library, guard: Guard) -> None:
    """It may call a server in the same process, as a gateway does: the keys that it sends there count."""
    bank, gateway, count = library.server(), library.server(), Counter()

    @library.tool(bank, guard, required=True)
    def charge(order: str) -> int:
        return count(order)

    @library.tool(gateway, guard)
    async def charge_twice(order: str) -> list[bool]:
        async with library.connect(bank) as client:
            call = client.call_tool_mcp if library.name == "fastmcp" else client.call_tool
            meta: Any = {META_KEY: f"charge {order}"}
            return [outcome(await call("charge", {"order": order}, meta=meta))["replayed"] for _ in range(2)]

    (result,) = library.call(gateway, "charge_twice", {"order": "a"}, "key")
    assert result.structured_content == {"result": [False, True]}
    assert count.seen == [("a",)]


def test_effects_in_the_database_are_rolled_back_with_an_error(library: Library, tmp_path: Path) -> None:
    """What a tool raised is known not to have happened: the retry runs, and then both are committed."""
    guard = Guard(f"sqlite:///{tmp_path}/keys.db", scope=scopes.service("billing"))
    with connection(guard) as setup:
        setup.execute("CREATE TABLE charges (amount INTEGER)")
    server, broke = library.server(), Counter()

    @library.tool(server, guard, effects="database")
    def charge(amount: int) -> int:
        with connection(guard) as database:
            database.execute("INSERT INTO charges VALUES (?)", (amount,))
            if broke() == 1:
                raise library.error("declined")
            return amount

    results = library.call(server, "charge", {"amount": 5}, "key", "key", "key")
    assert [result.is_error for result in results] == [True, False, False]
    assert [outcome(result).get("replayed") for result in results] == [None, False, True]
    with connection(guard) as database:
        assert database.execute("SELECT amount FROM charges").fetchall() == [(5,)]
    guard.close()


def test_a_value_that_an_operator_has_stored_is_a_result(library: Library, tmp_path: Path) -> None:
    """`retrysafe resolve --done --value` takes what the tool would have returned, or a whole result."""
    path = tmp_path / "keys.db"
    guard = Guard(f"sqlite:///{path}", scope=scopes.service("billing"))
    server = library.server()

    @library.tool(server, guard)
    def charge() -> str:
        return "ch_1"

    @library.tool(server, guard)
    def bill() -> Line:
        return Line(name="ch_1")

    (made,) = library.call(server, "charge", {}, "a result")
    whole = json.dumps({"content": [], "structuredContent": {"result": "ch_1"}, "isError": False})
    for name, value, expected in (
        ("charge", '"ch_2"', {"result": "ch_2"}),
        ("charge", whole, made.structured_content),
        ("bill", '{"name": "ch_2", "tags": []}', {"name": "ch_2", "tags": []}),
    ):
        library.call(server, name, {}, value)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE retrysafe_records SET body = ? WHERE key = ?", (value.encode(), value))
        (again,) = library.call(server, name, {}, value)
        assert (again.is_error, again.structured_content) == (False, expected)
        assert texts(again)[-1] == REPLAYED
    if library.name == "mcp":  # which validates
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE retrysafe_records SET body = ?", (b"5",))
        (again,) = library.call(server, "bill", {}, '{"name": "ch_2", "tags": []}')
        assert again.is_error
        assert texts(again) == ["5", REPLAYED]
    guard.close()


def test_a_store_that_is_down_is_a_tool_error(library: Library, tmp_path: Path) -> None:
    """Nothing runs unprotected, and the model is told to come back."""
    guard = Guard(f"sqlite:///{tmp_path}/missing/keys.db", scope=scopes.service("billing"))
    server, count = library.server(), Counter()

    @library.tool(server, guard)
    def charge() -> int:
        return count()

    (refused,) = library.call(server, "charge", {}, "key")
    assert outcome(refused) == {"code": "store-unavailable", "retry": True, "retryAfter": 1.0}
    assert "Wait 1 second, then make the same call again, with the same key." in texts(refused)[0]
    assert count.seen == []
    guard.close()


def test_where_it_may_run_unprotected_the_result_says_so(library: Library, tmp_path: Path) -> None:
    """`store_down="run"`: the model is told not to make the call again."""
    guard = Guard(f"sqlite:///{tmp_path}/missing/keys.db", scope=scopes.service("billing"), store_down="run")
    server, count = library.server(), Counter()

    @library.tool(server, guard)
    def charge() -> int:
        return count()

    (result,) = library.call(server, "charge", {}, "key")
    assert outcome(result)["stored"] is False
    assert "could not be stored. Take it, and do not make the call again." in texts(result)[-1]
    guard.close()


def test_a_server_that_shuts_down_claims_nothing(library: Library, guard: Guard) -> None:
    """The model is told to come back, and nothing was done."""
    server, count = library.server(), Counter()

    @library.tool(server, guard)
    def charge() -> int:
        return count()

    guard.drain()
    (refused,) = library.call(server, "charge", {}, "key")
    assert outcome(refused)["code"] == "draining"
    assert count.seen == []


def test_a_question_to_the_client_is_not_a_result(guard: Guard) -> None:
    """A tool that asks the user first (MCP 2026-07-28) is called again with the same key, and then done."""
    from mcp.client import Client, ClientRequestContext

    library, count = LIBRARIES["mcp"](), Counter()
    server = library.server()

    @library.tool(server, guard)
    async def charge(order: str, ctx: Any) -> str | types.InputRequiredResult:
        if ctx.input_responses is None:
            asked = types.ElicitRequestFormParams(
                message="Really?", requested_schema={"type": "object", "properties": {}}
            )
            return types.InputRequiredResult(input_requests={"sure": types.ElicitRequest(params=asked)})
        return f"charged {order}, {count()}"

    async def accept(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={})

    async def twice() -> list[types.CallToolResult]:
        async with Client(server, elicitation_callback=accept) as client:
            meta: Any = {META_KEY: "key"}
            return [await client.call_tool("charge", {"order": "a"}, meta=meta) for _ in range(2)]

    results = asyncio.run(twice())
    assert [texts(result) for result in results] == [["charged a, 1"], ["charged a, 1", REPLAYED]]


def test_a_visit_to_a_page_is_not_a_result(guard: Guard) -> None:
    """A tool that sends the user to a page first frees its key; its error reaches the client as it is."""
    from mcp.client import Client
    from mcp.shared.exceptions import UrlElicitationRequiredError

    library, count = LIBRARIES["mcp"](), Counter()
    server = library.server()

    @library.tool(server, guard)
    def charge() -> int:
        if count() == 1:
            page = types.ElicitRequestURLParams(
                message="Log in", url="https://example.com", elicitation_id="1"
            )
            raise UrlElicitationRequiredError([page])
        return 5

    async def twice() -> types.CallToolResult:
        async with Client(server) as client:
            meta: Any = {META_KEY: "key"}
            with pytest.raises(Exception, match=r"(?i)elicitation|log in"):
                await client.call_tool("charge", {}, meta=meta)
            return await client.call_tool("charge", {}, meta=meta)

    assert asyncio.run(twice()).structured_content == {"result": 5}


def test_a_keyless_tool_that_says_not_done_is_what_it_was(library: Library, guard: Guard) -> None:
    """Without a key there is nothing to free, and the library words the exception as it does."""
    server = library.server()

    @library.tool(server, guard)
    def charge() -> int:
        raise NotDone("closed")

    (result,) = library.call(server, "charge", {}, None)
    assert result.is_error
    assert outcome(result) == {}


def test_fastmcp_clients_read_replays_as_data(guard: Guard) -> None:
    """What FastMCP adds to results for its own client is replayed, too."""
    library = LIBRARIES["fastmcp"]()
    server = library.server()

    @library.tool(server, guard)
    def charge() -> list[int]:
        return [1, 2]

    async def twice() -> list[object]:
        async with library.connect(server) as client:
            return [(await client.call_tool("charge", {}, meta={META_KEY: "key"})).data for _ in range(2)]

    assert asyncio.run(twice()) == [[1, 2], [1, 2]]


def test_a_server_that_stops_waits_for_its_tools(library: Library, tmp_path: Path) -> None:
    """`lifespan(guard)`: a tool whose client has gone comes to its end, and the retry gets its result."""
    guard = Guard(f"sqlite:///{tmp_path}/keys.db", scope=scopes.service("billing"))
    server = library.server(lifespan=lifespan(guard))
    begun, ended = asyncio.Event(), Counter()

    @library.tool(server, guard)
    async def charge() -> int:
        begun.set()
        while not guard.runtime.draining:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        return ended()

    async def hang_up() -> None:
        async with library.connect(server) as client:
            call = asyncio.ensure_future(client.call_tool("charge", {}, meta={META_KEY: "key"}))
            await begun.wait()
            call.cancel()

    asyncio.run(hang_up())
    assert ended.seen == [()]
    (again,) = library.call(server, "charge", {}, "key")
    assert again.structured_content == {"result": 1}
    assert outcome(again)["replayed"] is True
