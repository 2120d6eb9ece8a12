"""A server that ends in peace leaves a store that was closed: nothing to recover, nothing uncounted."""

import http.client
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from retrysafe import stores

SERVER = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from retrysafe import Guard, asgi, scopes

async def pay(request):
    return JSONResponse({"paid": True}, status_code=201)

app = Starlette(routes=[Route("/payments", pay, methods=["POST"])])
app = asgi.Middleware(app, Guard(sys.argv[1], scope=scopes.header("X-Tenant")))
uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


def pay(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/payments", b"{}", {"X-Tenant": "acme", "Idempotency-Key": "once"})
    status = connection.getresponse().status
    connection.close()
    return status


def test_sigterm_closes_the_store(tmp_path: Path) -> None:
    """The log is folded into the database, and the last count has arrived."""
    url = f"sqlite:///{tmp_path / 'keys.db'}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", SERVER, url, str(port)])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        assert [pay(port), pay(port)] == [201, 201]
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)
    finally:
        server.kill()
        server.wait()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["keys.db", "keys.db-lock"]
    store = stores.open(url)
    admin = store.open_admin()
    assert admin.statistics().verdicts == {"completed": 1, "replayed": 1}
    admin.close()
    store.close()
