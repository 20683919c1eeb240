"""Python files of the user's: reading them, and saying what went wrong in which of their lines."""

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from roundoff.core.files import regular_file
from roundoff.errors import BadInput, RoundoffError

__all__ = ["brief", "call_user_code", "load_user_module", "objects_with"]

_MOST_SHOWN = 60


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
    call_user_code(spec.loader.exec_module, module, path=path, what=what)
    return module


def call_user_code(function: Callable[..., Any], *values: Any, path: Path, what: str) -> Any:
    """Call a function of a file of the user's; what it prints goes to stderr, where it is in nobody's way.

    Args:
        function: The function.
        values: What it is called with.
        path: The file.
        what: What it is, as the start of a sentence ("The evaluator").

    Raises:
        BadInput: It failed, or would end the program.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return function(*values)
    except RoundoffError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(path, error, what=what) from error


def objects_with(methods: Sequence[str], module: ModuleType, path: Path, *, what: str) -> list[Any]:
    """Objects of a file of the user's that have some methods: those it made, else one of each of its classes.

    A class that another one in the file is derived from counts only by that.

    Raises:
        BadInput: A class cannot be made without arguments.
    """
    own = {name: each for name, each in vars(module).items() if not name.startswith("_")}.values()
    made = [each for each in own if not inspect.isclass(each) and not inspect.ismodule(each)]
    found = [each for each in made if _has(type(each), methods)]
    if found:
        return list({id(each): each for each in found}.values())
    classes = {each for each in own if inspect.isclass(each) and each.__module__ == module.__name__}
    last = [
        each for each in classes if not any(each is not other and issubclass(other, each) for other in classes)
    ]
    able = sorted((each for each in last if _has(each, methods)), key=lambda each: each.__name__)
    return [call_user_code(each, path=path, what=what) for each in able]


def _has(kind: type, methods: Sequence[str]) -> bool:
    return all(callable(getattr(kind, name, None)) for name in methods)


def brief(value: Any) -> str:
    """What a function of the user's gave, in a few words of one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 4] + " ..."


def _failed(path: Path, error: BaseException, *, what: str) -> BadInput:
    """What went wrong in a file of the user's, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    where = f" in line {lines[-1]}" if lines else ""
    text = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return BadInput(f"{what} {path} failed{where}: {reason}.", fix="correct it and run again")
