"""Becomes a tool, and has it end with the process that started it.

    python tools/evidence/launcher.py PARENT MODULE ARGUMENTS…

`make evidence` may be killed without a chance to end what it has started.  Linux then sends Ctrl-C to the
tool, because we ask for that here, and the tool ends its own children.  Elsewhere it works on until it is
done, and its report is not read.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    _, parent, module, *arguments = sys.argv
    # What a shell runs in the background inherits that Ctrl-C is ignored, and would leave servers behind.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != int(parent):
            sys.exit("the process that started this has ended")
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


if __name__ == "__main__":
    main()
