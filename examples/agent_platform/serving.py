"""The platform as a process that can be killed and started again."""

from pathlib import Path

from examples.services import Service

LEASE = "2"
"""Seconds: short, so that a retry soon takes over from a worker that was killed."""


class Platform(Service):
    """Runs as long as the `with` does."""

    def __init__(
        self,
        database: str,
        folder: Path,
        *,
        workers: int = 2,
        program: str = "examples.agent_platform",
        **environment: str,
    ) -> None:
        self.database = database
        given = {"PLATFORM_DATABASE": database, "PLATFORM_LEASE": LEASE, **environment}
        super().__init__(program, folder, given, workers=workers)
