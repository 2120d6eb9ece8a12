"""Ports for the servers that tests start."""

import socket


def free_port() -> int:
    """One of the loopback interface that no process listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
