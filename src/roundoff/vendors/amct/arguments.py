"""Arguments of the functions, checked for what they are."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roundoff.vendors.errors import WrongType, WrongValue

__all__ = ["a_flag", "a_path", "a_positive", "layer_names"]


def a_path(name: str, given: Any) -> Path:
    """An argument that is a path.

    Raises:
        WrongType: It is something else.
    """
    if not isinstance(given, str | os.PathLike):
        raise WrongType(f"{name} is {given!r}, not the path of a file.", fix=f"write {name}='...'")
    return Path(given)


def a_flag(name: str, given: Any) -> bool:
    """An argument that is True or False.

    Raises:
        WrongType: It is something else.
    """
    if not isinstance(given, bool):
        raise WrongType(f"{name} is {given!r}, neither True nor False.", fix=f"write {name}=True or {name}=False")
    return given


def a_positive(name: str, given: Any) -> int:
    """An argument that is a whole number above zero.

    Raises:
        WrongType: It is something else.
        WrongValue: It is not above zero.
    """
    if isinstance(given, bool) or not isinstance(given, int):
        raise WrongType(f"{name} is {given!r}, not a whole number.", fix=f"write {name}=1 or more")
    if given < 1:
        raise WrongValue(f"{name} is {given}.", fix=f"write {name}=1 or more")
    return given


def layer_names(name: str, given: Any) -> tuple[str, ...]:
    """An argument that is a list of names; None stands for none.

    Raises:
        WrongType: It is something else.
    """
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(n, str) for n in given):
        raise WrongType(f"{name} is {given!r}, not a list of names.", fix=f"write {name}=['conv1', ...]")
    return tuple(given)
