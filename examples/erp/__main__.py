"""Runs all of it, in this folder: a card provider, the tables, and the ERP under gunicorn."""

import subprocess
import sys


def main() -> None:
    provider = subprocess.Popen([sys.executable, "-m", "examples.orders.provider"])
    try:
        subprocess.run([sys.executable, "-m", "examples.erp.setup"], check=True)
        serve = ["gunicorn", "--config", "python:examples.erp.serving", "examples.erp.app:create_app()"]
        subprocess.run([sys.executable, "-m", *serve], check=True)
    except KeyboardInterrupt:
        pass  # gunicorn has heard it too, and has ended
    finally:
        provider.terminate()
        provider.wait()


if __name__ == "__main__":
    main()
