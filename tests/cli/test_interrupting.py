"""Ctrl-C while libraries are loaded."""

import subprocess
import sys

import pytest

# A loader of machine code that is interrupted while it works, and something to do afterwards.
_SCRIPT = """
import os, signal, sys, time
from importlib.machinery import ExtensionFileLoader
from roundoff.cli.terminal import interrupt_on_terminate

class Loader(ExtensionFileLoader):
    def exec_module(self, module):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.1)
        print("loaded", flush=True)

interrupt_on_terminate()
try:
    if {loading}:
        Loader("x", "x.so").exec_module(None)
    else:
        os.kill(os.getpid(), signal.{name})
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
_IGNORING = """
import signal
from roundoff.cli.terminal import interrupt_on_terminate
signal.signal(signal.SIGINT, signal.SIG_IGN)
interrupt_on_terminate()
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""
_STARTING = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "roundoff.cli.terminal":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from roundoff.__main__ import start
start()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(("loading", "said"), [(True, ["loaded", "interrupted"]), (False, ["interrupted"])])
def test_a_library_is_loaded_to_its_end(name: str, loading: bool, said: list[str]) -> None:
    words = [sys.executable, "-c", _SCRIPT.format(name=name, loading=loading)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.split() == said, done.stderr


def test_who_ignores_ctrl_c_is_obeyed() -> None:
    words = [sys.executable, "-c", _IGNORING]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_it_is_quiet_while_the_command_line_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", _STARTING], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


_NAMING = """
import os, signal, time
from roundoff.cli.terminal import interrupt_on_terminate

class Field:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        print("named", flush=True)

interrupt_on_terminate()
try:
    class Model:
        field = Field()
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_fields_of_classes_are_named_to_the_end() -> None:
    words = [sys.executable, "-c", _NAMING]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.split() == ["named", "interrupted"], done.stderr
