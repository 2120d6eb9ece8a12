"""`stores.open` and the stores of other distributions, which have an entry point."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ADDRESS = "mystore://user:hunter2@db/app"

STORE = """
import time
from tests.stores.own_store import OwnStore

opened = []

def open_url(url, *, deadline):
    opened.append((url, deadline))
    return OwnStore(time.time)
"""

GUARDED_REQUEST = f"""
import sys
assert "mystore" not in sys.modules
from retrysafe import Guard, scopes, stores
assert "mystore" not in sys.modules and "importlib.metadata" not in sys.modules
stores.open("memory:")
stores.open("sqlite:///keys.db")
assert "importlib.metadata" not in sys.modules, "entry points are looked up for schemes that are not ours"

from tests.core.wsgi_calls import Served, an_environ
from retrysafe.wsgi import Middleware

calls = []
def pay(environ, start_response):
    calls.append(environ)
    start_response("201 Created", [("Content-Type", "text/plain")])
    return [b"paid"]

guard = Guard({ADDRESS!r}, scope=scopes.header("X-Tenant"))
app = Middleware(pay, guard)
first, second = Served(app, an_environ()), Served(app, an_environ())
assert (first.line, second.line) == ("201 Created", "201 Created")
assert ("idempotent-replayed", "true") in [(name.lower(), value) for name, value in second.fields]
assert len(calls) == 1

stores.open({ADDRESS!r}, deadline=0.5)
import mystore
assert mystore.opened == [({ADDRESS!r}, 2.0), ({ADDRESS!r}, 0.5)]
print("served")
"""

REFUSED = """
import sys
from retrysafe import stores
try:
    stores.open(sys.argv[1])
except stores.ConfigurationError as refused:
    print(refused)
"""


def install(folder: Path, distribution: str, entry_points: str, module: str = STORE) -> Path:
    """What an installer would leave: a module, and the metadata that lists its entry points."""
    root = folder / distribution
    info = root / f"{distribution.replace('-', '_')}-1.5.dist-info"
    info.mkdir(parents=True)
    (root / "mystore.py").write_text(module)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[retrysafe.stores]\n{entry_points}\n")
    return root


def run(code: str, *installed: Path, address: str = ADDRESS) -> str:
    paths = [*map(str, installed), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", code, address],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "hunter2" not in done.stdout
    return done.stdout


def test_a_guarded_request(tmp_path: Path) -> None:
    """The address is handed on whole, with the deadline; the store that comes back serves requests.  Neither
    importing nor opening one of ours looks for entry points."""
    root = install(tmp_path, "my-store", "mystore = mystore:open_url")
    assert run(GUARDED_REQUEST, root).strip() == "served"


def test_it_is_among_the_known(tmp_path: Path) -> None:
    """An unknown scheme is refused with all that there are, those of other distributions included."""
    root = install(tmp_path, "my-store", "mystore = mystore:open_url")
    sql = "sqlite:///keys.db, postgresql://user@host/database, "
    mysql = "mysql://user@host/database, mariadb://user@host/database, "
    redis = "redis://host:6379/0, redis+cluster://host:6379, redis+unix:///path/of/socket"
    known = f"memory:, {sql}{mysql}{redis} or mystore: of my-store 1.5"
    told = run(REFUSED, root, address="mongodb://user:hunter2@db")
    assert told.strip() == f"mongodb: is not a known scheme of stores: expected {known}"
    told = run(REFUSED, root, address="mystor://user:hunter2@db")
    assert told.strip() == f"mystor: is not a known scheme of stores: did you mean mystore:? Expected {known}"
    assert known in run(REFUSED, root, address="hunter2")


def test_a_scheme_that_is_planned_may_be_brought(tmp_path: Path) -> None:
    """Another distribution may have what is not available here yet."""
    root = install(tmp_path, "my-store", "redis = mystore:open_url")
    assert run(REFUSED, root, address="redis://:hunter2@cache") == ""


def test_ours_are_not_replaced(tmp_path: Path) -> None:
    """An installed package must not change where the records of an existing address are."""
    root = install(tmp_path, "my-store", "memory = mystore:broken")
    assert run(REFUSED, root, address="memory:") == ""


@pytest.mark.parametrize(
    ("entry_point", "module", "says"),
    [
        ("nowhere:open_url", STORE, "failed to load (ModuleNotFoundError: No module named 'nowhere')"),
        ("mystore:close_url", STORE, "failed to load (AttributeError: "),
        ("mystore:open_url", "1 / 0", "failed to load (ZeroDivisionError: division by zero)"),
        ("mystore:opened", STORE, "is []: expected a function of (url, *, deadline)"),
        ("mystore:open_url", "def open_url(url): ...", "raised TypeError: expected a store, or a Config"),
        ("mystore:open_url", "def open_url(url, **more): raise ValueError(url)", "raised ValueError: expect"),
        ("mystore:open_url", "def open_url(url, *, deadline): ...", "returned NoneType, which is not"),
        (
            "mystore:open_url",
            "class Half:\n reserve = look = None\ndef open_url(url, *, deadline): return Half()",
            "returned Half, which is not a store: it has no aio, take_over, checkpoint,",
        ),
    ],
)
def test_a_broken_entry_point(entry_point: str, module: str, says: str, tmp_path: Path) -> None:
    """Whose it is, and what is wrong with it."""
    told = run(REFUSED, install(tmp_path, "my-store", f"mystore = {entry_point}", module))
    assert told.startswith(f"mystore: cannot be opened, the entry point {entry_point} of my-store 1.5 {says}")


def test_an_address_that_its_store_refuses(tmp_path: Path) -> None:
    """In the words of the store."""
    module = (
        "from retrysafe.errors import ConfigurationError\n"
        "def open_url(url, *, deadline): raise ConfigurationError('mystore: needs a port')"
    )
    assert run(REFUSED, install(tmp_path, "my-store", "mystore = mystore:open_url", module)) == (
        "mystore: needs a port\n"
    )


def test_two_of_the_same_scheme(tmp_path: Path) -> None:
    """Which one is meant is not guessed: the records would be in one of two places."""
    one = install(tmp_path, "my-store", "mystore = mystore:open_url")
    other = install(tmp_path, "your-store", "mystore = yours:open_url")
    told = run(REFUSED, one, other)
    assert "is a scheme of several distributions, my-store 1.5 and your-store 1.5: uninstall all but" in told


INTERVAL = """
import sys
from retrysafe import stores
try:
    stores.open(sys.argv[1], cleanup_interval="5m")
except stores.ConfigurationError as refused:
    print(refused)
else:
    import mystore
    print(mystore.opened)
"""


def test_the_interval_of_cleanup(tmp_path: Path) -> None:
    """An opener that takes it gets it as it was written."""
    module = STORE.replace("deadline):", "deadline, cleanup_interval=5.0):").replace(
        "(url, deadline)", "(deadline, cleanup_interval)"
    )
    root = install(tmp_path, "my-store", "mystore = mystore:open_url", module)
    assert run(INTERVAL, root).strip() == "[(2.0, '5m')]"


def test_an_opener_that_takes_a_deadline_alone(tmp_path: Path) -> None:
    """It is not called with what it cannot do, and the caller is told so."""
    root = install(tmp_path, "my-store", "mystore = mystore:open_url")
    told = run(INTERVAL, root)
    assert told.startswith(
        "mystore: takes no cleanup_interval (entry point mystore:open_url of my-store 1.5)"
    )
    assert "leave it out" in told
