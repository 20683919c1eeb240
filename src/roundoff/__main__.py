"""``python -m roundoff`` does what the command ``roundoff`` does."""

import sys

from roundoff.cli import main

if __name__ == "__main__":
    sys.exit(main())
