"""Python files of the user's: reading and running them, and saying what went wrong in which of their lines."""

import contextlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from roundoff.core.files import regular_file
from roundoff.errors import BadInput, RoundoffError

__all__ = ["load_user_module", "running_user_code", "user_code_failed"]


def load_user_module(path: Path, *, what: str) -> ModuleType:
    """Run a Python file of the user's and give its module.

    Args:
        path: The file.
        what: What it is, as the start of a sentence ("The evaluator").

    Raises:
        BadInput: It cannot be read or run.
    """
    regular_file(path, what=what)
    spec = importlib.util.spec_from_file_location("roundoff_user_code", path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{what} {path} is not a Python file.", fix="give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    with running_user_code(path, what=what):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def running_user_code(path: Path, *, what: str) -> Iterator[None]:
    """Turn whatever fails in a file of the user's into advice; what it prints goes to stderr, not among results.

    A file that ends the program fails, too: nobody would know that there is no result.

    Args:
        path: The file.
        what: What it is, as the start of a sentence ("The evaluator").
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except RoundoffError:
        raise
    except (Exception, SystemExit) as error:
        raise user_code_failed(path, error, what=what) from error


def user_code_failed(path: Path, error: Exception | SystemExit, *, what: str) -> BadInput:
    """What went wrong in a file of the user's, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    where = f" in line {lines[-1]}" if lines else ""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return BadInput(f"{what} {path} failed{where}: {reason}.", fix="correct it and run again")
