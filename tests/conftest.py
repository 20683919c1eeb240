"""Settings for all tests."""

import os
import signal
import sys
from pathlib import Path

# Before any test imports onnxruntime.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# The language of the machine is not that of the tests, nor of the commands they start.
os.environ["ROUNDOFF_LANG"] = os.environ["LC_ALL"] = os.environ["LC_MESSAGES"] = ""
os.environ["LANG"] = "C.UTF-8"
# argparse asks for the translation of each of its words, and files would be looked for each time.
os.environ["LANGUAGE"] = "C"
# As many tests run at a time as there are cores: threads of one product would only wait for those of another.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Where no bytecode is wanted beside the sources it lies apart: without any, each process that tests start would
# compile the program, and each that runs tests would rewrite the asserts of all of them, for 12 s.
if sys.dont_write_bytecode and sys.pycache_prefix is None:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).resolve().parents[1] / "out" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
# What nobody foresaw is a fault of ours here, never bad input.
os.environ["ROUNDOFF_TRACEBACK"] = "1"

from hypothesis import settings

# The same examples in every run: a change fails its own tests, not those of whoever runs them next.
# To look for new examples: pytest --hypothesis-profile=explore.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("explore", deadline=None)
settings.load_profile("repeatable")

# Started in the background of a shell, tests and the commands they start would not hear Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
