"""One server under uvicorn, on a socket that it inherits:  python -m benchmarks.serve APP FOLDER FD"""

import socket
import sys

import uvicorn

from benchmarks.apps import load


def main(name: str, folder: str, descriptor: str) -> None:
    listening = socket.socket(fileno=int(descriptor))
    config = uvicorn.Config(
        load(name, folder), loop="uvloop", http="httptools", access_log=False, log_level="warning"
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
