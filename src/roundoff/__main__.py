"""``python -m roundoff`` does what the command ``roundoff`` does."""

import os
import signal
import sys

_INTERRUPTED = 130


def start() -> int:
    """Run the command line; Ctrl-C ends it quietly even while it is still being loaded."""
    try:
        from roundoff.cli import main

        code = main()
        # All is done and said; a late Ctrl-C must not take the exit code along.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return code
    except KeyboardInterrupt:
        # Nothing is written yet, and Python may have forgotten that anyone handled it.
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(start())
