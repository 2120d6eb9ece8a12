"""Makes the tables and serves the platform: `python -m examples.agent_platform`."""

import argparse

import uvicorn

from examples.agent_platform.database import engine
from examples.agent_platform.models import Base


def main(app: str = "examples.agent_platform.app:app") -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.agent_platform")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    Base.metadata.create_all(engine)  # here, because two workers would do it at the same time
    engine.dispose()
    uvicorn.run(app, port=given.port, workers=given.workers, access_log=False)


if __name__ == "__main__":
    main()
