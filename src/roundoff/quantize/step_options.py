"""Options of transforms and corrections: declared once, and checked before anything runs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roundoff.core.recipe import OptionValue, Step
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model

__all__ = ["Chosen", "StepOption", "check_nodes", "options_from"]

Chosen = Mapping[str, OptionValue]
"""The value of every option."""

_WORDS: dict[str, OptionValue] = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class StepOption:
    """One option: a number, a switch, or one of several words.

    Attributes:
        default: Its value when nothing is said; its type is the option's.
        meaning: What it says, as the end of a sentence.
        least: Smallest number allowed.
        most: Largest number allowed.
        words: The words allowed; a number is allowed beside them when the default is one.
    """

    default: OptionValue
    meaning: str
    least: float = -math.inf
    most: float = math.inf
    words: tuple[str, ...] = ()

    def read(self, name: str, given: OptionValue) -> OptionValue:
        """What was given, as the option's own type.

        Raises:
            BadInput: It is none.
        """
        value = given
        if isinstance(self.default, bool) and isinstance(given, str):
            value = _WORDS.get(given.casefold(), given)
        if isinstance(self.default, bool) and isinstance(value, bool):
            return value
        if isinstance(value, str) and value in self.words:
            return value
        takes_numbers = isinstance(self.default, int | float) and not isinstance(self.default, bool)
        number = _number(value) if takes_numbers else None
        whole = not isinstance(self.default, int) or (number is not None and number.is_integer())
        if number is not None and whole and self.least <= number <= self.most:
            return int(number) if isinstance(self.default, int) else number
        raise BadInput(f"The option {name} is {given!r}; it is {self.meaning}.", fix=f"give {self.allowed}")

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        if isinstance(self.default, bool):
            return "true or false"
        words = " or ".join(self.words)
        if isinstance(self.default, str):
            return words
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        limits = f" from {self.least:g}" if math.isfinite(self.least) else ""
        limits += f" to {self.most:g}" if math.isfinite(self.most) else ""
        return f"{kind}{limits}" + (f", or {words}" if words else "")


def _number(value: OptionValue) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def options_from(step: Step, known: Mapping[str, StepOption]) -> dict[str, OptionValue]:
    """The value of every option of a step.

    Raises:
        BadInput: It has no option of that name, or the value is not allowed.
    """
    given = dict(step.options)
    for name in given:
        if name not in known:
            fix = nearest(name, known) if known else f"{step.name} has no options, leave it out"
            raise BadInput(f"{step.name} has no option {name!r}.", fix=fix)
    return {
        name: option.read(name, given[name]) if name in given else option.default for name, option in known.items()
    }


def check_nodes(names: Iterable[str], model: Model) -> frozenset[str]:
    """The nodes a step is limited to.

    Raises:
        BadInput: The model has no such node.
    """
    known = [node.name for node in model.proto.graph.node]
    wanted = frozenset(names)
    for name in sorted(wanted.difference(known)):
        what = f"{model.path} has no node {name!r} once it is prepared: it was folded, or never there."
        raise BadInput(what, fix=nearest(name, known))
    return wanted
