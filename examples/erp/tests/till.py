"""A till: it sends requests over a socket, with the session of the user who has logged in at it."""

import json
from typing import Any

from examples.erp.setup import PASSWORD
from retrysafe.testing.adapters.client import PATIENCE, Client, Field, Reply


class Till:
    def __init__(self, port: int) -> None:
        self._client = Client(port)
        self.cookie: str | None = None

    def log_in(self, tenant: str, user: str) -> None:
        reply = self.post("/login", {"tenant": tenant, "user": user, "password": PASSWORD})
        assert reply.status == 204, reply
        self._take_cookie(reply)

    def log_out(self) -> None:
        self._take_cookie(self.post("/logout"))

    def _take_cookie(self, reply: Reply) -> None:
        name, _, value = (reply.header("Set-Cookie") or "").partition(";")[0].partition("=")
        assert name == "session", reply
        self.cookie = value or None

    def post(self, path: str, body: object = None, key: str | None = None) -> Reply:
        return self.ask("POST", path, body, key)

    def get(self, path: str) -> Any:
        reply = self.ask("GET", path)
        assert reply.status == 200, reply
        return reply.document

    def ask(self, method: str, path: str, body: object = None, key: str | None = None) -> Reply:
        """Send a request and read its response."""
        content = b"" if body is None else json.dumps(body).encode()
        return self._client.request(method, path, user=None, body=content, fields=self._fields(key))

    def lose(self, method: str, path: str, body: object, key: str | None, *, at_once: bool) -> None:
        """Send a request, and hang up: at once, or when there is a response."""
        content = json.dumps(body).encode()
        with self._client.connect() as connection:
            length = ("Content-Length", str(len(content)))
            connection.head(method, path, [*self._fields(key), length, ("Connection", "close")])
            connection.send(content)
            assert at_once or not connection.is_silent(PATIENCE)

    def _fields(self, key: str | None) -> list[Field]:
        fields: list[Field] = [("Content-Type", "application/json"), ("Accept", "application/json")]
        if self.cookie is not None:
            fields.append(("Cookie", f"session={self.cookie}"))
        if key is not None:
            fields.append(("Idempotency-Key", key))
        return fields
