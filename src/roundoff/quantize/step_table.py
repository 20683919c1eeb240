"""Transforms and corrections as steps of a recipe: their options, their tables, and what they work with."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from roundoff.core.plan import OptionValue, Step
from roundoff.core.progress import SILENT, Progress
from roundoff.core.table import Table, summary_of
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, RoundoffError, StepFailed, nearest, reason
from roundoff.graph.load import Model
from roundoff.quantize.step_report import Participation
from roundoff.run.capture import Samples

__all__ = [
    "Chosen",
    "Participation",
    "StepKind",
    "StepOption",
    "StepTable",
    "WorkContext",
    "check_nodes",
    "options_from",
]


# Options of transforms and corrections: declared once, and checked before anything runs.

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


Work = TypeVar("Work", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class StepKind(Generic[Work]):
    """One transform, or one correction.

    Attributes:
        name: As users write it.
        summary: What it does, in one sentence.
        options: What can be chosen.
        work: Does it.
    """

    name: str
    summary: str
    options: Mapping[str, StepOption]
    work: Work


class StepTable(Table[StepKind[Work]]):
    """All transforms, or all corrections."""

    def step(self, name: str, **options: StepOption) -> Callable[[Work], Work]:
        """Register a function as a step; its docstring's first line is the summary."""
        return self.register(name, make=lambda work: StepKind(name, summary_of(work), options, work))

    def all(self) -> Iterator[StepKind[Work]]:
        """Every step."""
        yield from self.values()

    def carry_out(self, step: Step, job: Any) -> Any:
        """Do what a recipe names.

        Raises:
            StepFailed: It does not get along with this model.
        """
        chosen = self.find(step.name)
        try:
            return chosen.work(job)
        except (RoundoffError, MemoryError):
            raise
        except Exception as error:
            raise StepFailed(step.name, reason(error)) from error


# What transforms and corrections work with besides the model: the chip, the samples, limits.


@dataclass(frozen=True, slots=True)
class WorkContext:
    """What a step works with.

    Attributes:
        target: For which chip.
        samples: Calibration samples.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take.
        progress: Told how far it is.
        memory: What steps computed and may need again, by a name that says from what.
    """

    target: Target
    samples: Samples
    threads: int | None = None
    max_memory: int | None = None
    progress: Progress = SILENT
    memory: dict[str, Array] = field(default_factory=dict, compare=False)
