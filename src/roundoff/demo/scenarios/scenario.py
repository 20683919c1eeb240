"""What a story is, and which there are."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path

from roundoff.errors import BadInput
from roundoff.messages.message import english

__all__ = ["SCENARIOS", "Scenario", "scenario"]

SCENARIOS = {
    "repair": "a chip with 4-bit weights: why accuracy drops, and what brings it back",
    "board": "a broken board: which layer it computes wrongly",
    "ocr": "a text recogniser from the package rapidocr-onnxruntime: int8 and the way back",
}
"""Their names, and what they show."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One story.

    Attributes:
        marker: A file among the inputs by which an earlier demo is known.
        prepare: Puts the inputs into an empty folder.
        introduction: What is wrong, for people.
        command: The words of the command behind the program's name, line by line, given the folders of the inputs
            and of the results.
        conclusion: What to look at, given both folders once the command has run.
    """

    marker: str
    prepare: Callable[[Path], None]
    introduction: str
    command: Callable[[Path, Path], list[list[str]]]
    conclusion: Callable[[Path, Path], str]


def scenario(name: str, *, target: str | None = None) -> Scenario:
    """One of `SCENARIOS`.

    Args:
        name: Which.
        target: For which chip, in a story that can be told of several.

    Raises:
        BadInput: It needs a package that is not there, or can be told of one chip only.
    """
    make = import_module(f"roundoff.demo.scenarios.{name}").make
    if target is not None and not signature(make).parameters:
        raise BadInput(
            english("The story {name!r} is told of its own chip.", name=name),
            fix=english("leave --target out, or tell 'ocr'"),
        )
    found: Scenario = make() if target is None else make(target)
    return found
