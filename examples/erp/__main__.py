"""Runs all of it, in this folder: a card provider, the tables, and the ERP under gunicorn."""

import signal
import subprocess
import sys


def main() -> None:
    # In a session of its own: Ctrl-C ends the ERP first, which may be charging a card.
    provider = subprocess.Popen([sys.executable, "-m", "examples.orders.provider"], start_new_session=True)
    try:
        subprocess.run([sys.executable, "-m", "examples.erp.setup"], check=True)
        serve = ["gunicorn", "--config", "python:examples.erp.serving", "examples.erp.app:create_app()"]
        erp = subprocess.Popen([sys.executable, "-m", *serve])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # gunicorn has it too, and is waited for
        signal.signal(signal.SIGTERM, lambda _signal, _frame: erp.terminate())
        sys.exit(erp.wait())
    finally:
        provider.terminate()
        provider.wait()


if __name__ == "__main__":
    main()
