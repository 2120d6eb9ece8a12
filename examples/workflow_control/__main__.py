"""Serves the workflows and their control: `python -m examples.workflow_control`."""

import argparse
import os
import secrets

import uvicorn


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.workflow_control")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    if "CONTROL_TOKENS" not in os.environ:
        token = secrets.token_hex(8)
        os.environ["CONTROL_TOKENS"] = f"you={token}"
        print(f"your token, for this run: {token}", flush=True)
    uvicorn.run("examples.workflow_control.app:app", port=given.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
