"""A job, as a process of its own: `python job.py ENVELOPE FOLDER` works and calls back.

It prints a line for each of its steps, so that a test knows how far it is.
"""

import sys

from retrysafe.callbacks.jobs import BackOff, Envelope, deliver


def main(envelope_path: str, folder: str) -> None:
    envelope = Envelope.read(envelope_path)
    callback = envelope.callback(status="completed", result_uri="s3://out/1.json")
    sys.stdout.write("worked\n")
    sys.stdout.flush()
    result = deliver(
        callback, url=envelope.context.callback_url, folder=folder, back_off=BackOff(0.001, 0.01)
    )
    sys.stdout.write(f"{result}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
