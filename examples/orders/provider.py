"""A payment provider that honours idempotency keys, to try the shop with.  It shares no code with it.

    python -m examples.orders.provider --port 9000 --books provider.db

A charge reserves money; `capture` takes it, `refund` gives it back.  Each is done once per key, and its books
say how often it was asked.  Amounts that end in 13 are declined.
"""

import argparse
import json
import random
import sqlite3
import sys
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BOOKS = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, what TEXT, charge TEXT, times INTEGER DEFAULT 1);
CREATE TABLE IF NOT EXISTS charges (
    id TEXT PRIMARY KEY, reference TEXT, amount INTEGER,
    captured INTEGER DEFAULT 0, refunded INTEGER DEFAULT 0
);
"""


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    books: Path
    delay = 0.0

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the client died while it sent the request
            self.close_connection = True
            return
        key = self.headers.get("Idempotency-Key")
        time.sleep(random.uniform(0, self.delay))  # before and after: the client may die at any moment
        match self.path.strip("/").split("/"):
            case _ if not key:
                self._respond(400, {"error": "no Idempotency-Key"})
            case ["charges"]:
                self._charge(key, json.loads(body))
            case ["charges", charge, "capture" | "refund" as what]:
                self._settle(key, what, charge)
            case _:
                self._respond(404, {"error": "no such thing"})

    def _charge(self, key: str, asked: dict[str, Any]) -> None:
        if asked["amount"] % 100 == 13:
            self._respond(402, {"error": "declined"})
            return
        id = f"ch_{key[:16]}"
        with closing(self._open()) as books, books:
            if self._is_new(books, key, "charge", id):
                books.execute(
                    "INSERT INTO charges (id, reference, amount) VALUES (?, ?, ?)",
                    (id, asked["reference"], asked["amount"]),
                )
        self._respond(201, {"id": id})

    def _settle(self, key: str, what: str, charge: str) -> None:
        with closing(self._open()) as books, books:
            if self._is_new(books, key, what, charge):
                column = {"capture": "captured", "refund": "refunded"}[what]
                books.execute(f"UPDATE charges SET {column} = {column} + amount WHERE id = ?", (charge,))
        self._respond(200, {"id": charge})

    def _open(self) -> sqlite3.Connection:
        books = sqlite3.connect(self.books, timeout=30)
        books.isolation_level = "IMMEDIATE"
        return books

    def _is_new(self, books: sqlite3.Connection, key: str, what: str, charge: str) -> bool:
        """Whether this key is asked for the first time; the same transaction then does what it is for."""
        [(times,)] = books.execute(
            "INSERT INTO calls (key, what, charge) VALUES (?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET times = times + 1 RETURNING times",
            (key, what, charge),
        ).fetchall()
        return bool(times == 1)

    def _respond(self, status: int, document: object) -> None:
        time.sleep(random.uniform(0, self.delay))
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: its books are its log."""


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A shop that dies in the middle of a call is what this is for."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it was given


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--books", type=Path, default=Path("provider.db"))
    parser.add_argument("--delay", type=float, default=0.0, help="at most so many seconds, twice per call")
    given = parser.parse_args()
    with closing(sqlite3.connect(given.books)) as books:
        books.executescript(BOOKS)
    Provider.books, Provider.delay = given.books, given.delay
    server = Server(("127.0.0.1", given.port), Provider)
    print(f"a payment provider at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
