"""One server under uvicorn, on a socket that it inherits:  python -m benchmarks.serve APP FOLDER FD"""

import importlib
import socket
import sys
from pathlib import Path

import uvicorn


def main(name: str, folder: str, descriptor: str) -> None:
    listening = socket.socket(fileno=int(descriptor))
    module, _, function = name.rpartition(".")
    app = getattr(importlib.import_module(f"benchmarks.{module or 'apps'}"), function)(Path(folder))
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
