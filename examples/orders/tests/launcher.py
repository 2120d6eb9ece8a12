"""Starts servers of the shop, quickly: `python -m examples.orders.tests.launcher`.

It imports the application once and listens.  Each line on its input asks for one more uvicorn, which is a
fork of it on the same socket; it prints its process id.  At the end of its input it kills what is left.
"""

import contextlib
import os
import signal
import socket
import sys

import uvicorn

from examples.orders.app import app


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end are not waited for
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    children: list[int] = []
    while sys.stdin.readline():
        child = os.fork()
        if child == 0:
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
            os._exit(0)
        children.append(child)
        print(child, flush=True)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
