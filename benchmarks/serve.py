"""One server under uvicorn, on a socket that it inherits:  python -m benchmarks.serve APP FOLDER FD"""

import socket
import sys
from pathlib import Path

import uvicorn

from benchmarks import apps


def main(name: str, folder: str, descriptor: str) -> None:
    listening = socket.socket(fileno=int(descriptor))
    app = getattr(apps, name)(Path(folder))
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
