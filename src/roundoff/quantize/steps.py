"""Transforms and corrections as steps of a recipe: their options, tables and context, and applying one."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, TypeAlias, TypeVar

from roundoff.core.plan import OptionValue, Step
from roundoff.core.progress import SILENT, Progress
from roundoff.core.table import Table, summary_of
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, RoundoffError, StepFailed, nearest, reason
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import ModelHashes, QuantizedModel, quantizer_hash
from roundoff.messages.message import Message, english, message
from roundoff.quantize.agreement import check_preparation
from roundoff.quantize.step_report import Participation
from roundoff.run.capture import Samples

__all__ = [
    "CORRECTIONS",
    "INSTALLED",
    "TRANSFORMS",
    "Chosen",
    "Corrected",
    "CorrectionJob",
    "Corrections",
    "Participation",
    "StepContext",
    "StepJob",
    "StepKind",
    "StepLibrary",
    "StepOption",
    "StepOutcome",
    "StepTable",
    "TransformJob",
    "Transformed",
    "all_corrections",
    "all_transforms",
    "apply_correction",
    "apply_transform",
    "check_nodes",
    "correction",
    "correction_names",
    "options_from",
    "transform",
    "transform_names",
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
        raise BadInput(
            english(
                "The option {name} is {given!r}; it is {meaning}.", name=name, given=given, meaning=self.meaning
            ),
            fix=english("give {allowed}", allowed=self.allowed),
        )

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
            fix = nearest(name, known) if known else english("{name} has no options, leave it out", name=step.name)
            raise BadInput(english("{name} has no option {name2!r}.", name=step.name, name2=name), fix=fix)
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
        what = english(
            "{path} has no node {name!r} once it is prepared: it was folded, or never there.",
            path=model.path,
            name=name,
        )
        raise BadInput(what, fix=nearest(name, known))
    return wanted


# What transforms and corrections work with besides the model: the chip, the samples, limits.


@dataclass(frozen=True, slots=True)
class StepContext:
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


Network = TypeVar("Network", Model, QuantizedModel)


@dataclass(frozen=True, slots=True)
class StepJob(Generic[Network]):
    """One transform of a float model, or one correction of a quantized one, to be done.

    Attributes:
        model: The model; it is not changed.
        context: What there is to work with.
        options: The value of every option.
        nodes: The nodes it is limited to; none for all.
    """

    model: Network
    context: StepContext
    options: Chosen
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class StepOutcome(Generic[Network]):
    """What a step made: a float model that computes what it did in another form, or one with other codes.

    Attributes:
        model: The model.
        taken: The nodes that took part; empty when nothing was changed.
        notes: What was left as it was and why, and how outputs compare.
        ranges: Tensors whose codes are to cover these values whatever else is observed: masks may saturate.
    """

    model: Network
    taken: tuple[Participation, ...]
    notes: tuple[Message, ...]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)


TransformJob: TypeAlias = StepJob[Model]
Transformed: TypeAlias = StepOutcome[Model]
CorrectionJob: TypeAlias = StepJob[QuantizedModel]
Corrected: TypeAlias = StepOutcome[QuantizedModel]


@dataclass(frozen=True, slots=True)
class StepKind(Generic[Network]):
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
    work: Callable[[StepJob[Network]], StepOutcome[Network]]


Work = TypeVar("Work", bound=Callable[..., Any])


class StepTable(Table[StepKind[Network]]):
    """All transforms, or all corrections."""

    def step(self, name: str, **options: StepOption) -> Callable[[Work], Work]:
        """Register a function as a step; its docstring's first line is the summary."""
        return self.register(name, make=lambda work: StepKind(name, summary_of(work), options, work))

    def all(self) -> Iterator[StepKind[Network]]:
        """Every step."""
        yield from self.values()

    def apply(self, step: Step, model: Network, context: StepContext) -> StepOutcome[Network]:
        """Do what a recipe names.

        Raises:
            BadInput: There is no such step, option or node, or the samples do not fit the model.
            ModelFailed: The model cannot be run.
            StepFailed: The step does not get along with it.
        """
        chosen = self.find(step.name)
        nodes = check_nodes(step.nodes, model if isinstance(model, Model) else model.float_model)
        job = StepJob(model, context, options_from(step, chosen.options), nodes)
        try:
            return chosen.work(job)
        except (RoundoffError, MemoryError):
            raise
        except Exception as error:
            raise StepFailed(step.name, reason(error)) from error


TRANSFORMS: StepTable[Model] = StepTable("transform", load=lambda: import_module("roundoff.quantize.transforms"))
"""Every transform: changes a float model without changing what it computes."""

CORRECTIONS: StepTable[QuantizedModel] = StepTable(
    "correction", load=lambda: import_module("roundoff.quantize.corrections")
)
"""Every correction: changes codes so that layers compute more nearly what they do in float."""

transform, all_transforms, transform_names = TRANSFORMS.step, TRANSFORMS.all, TRANSFORMS.names
correction, all_corrections, correction_names = CORRECTIONS.step, CORRECTIONS.all, CORRECTIONS.names
apply_correction = CORRECTIONS.apply

# Samples on which the outputs before and after are compared.
_CHECKED_SAMPLES = 16


def apply_transform(step: Step, model: Model, context: StepContext) -> Transformed:
    """Change a float model without changing what it computes; undone where outputs say otherwise.

    Args:
        step: Which transform, with which options, for which nodes.
        model: A prepared float model (`roundoff.graph.preparation`); it is not changed.
        context: What there is to work with.

    Raises:
        BadInput: There is no such transform, option or node, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
        StepFailed: The transform does not get along with it.
    """
    done = TRANSFORMS.apply(step, model, context)
    if not done.taken:
        return StepOutcome(model, (), done.notes, done.ranges)
    check = check_preparation(model, done.model, context.samples, count=_CHECKED_SAMPLES, threads=context.threads)
    if not check.agrees:
        undone = message("quantize.step_undone", step=step.name)
        return StepOutcome(model, (), (*done.notes, undone, *check.notes))
    worst = max((each.max_abs_error for each in check.outputs), default=0.0)
    if worst == 0:
        note = message("quantize.step_same_bits", step=step.name, count=check.samples)
    else:
        note = message("quantize.step_same_rounding", step=step.name, most=f"{worst:.2g}", count=check.samples)
    return StepOutcome(done.model, done.taken, (*done.notes, note), done.ranges)


class StepLibrary:
    """The transforms and corrections there are, and applying one of them; those of roundoff."""

    def transforms(self) -> tuple[str, ...]:
        """Names of the transforms there are."""
        return transform_names()

    def corrections(self) -> tuple[str, ...]:
        """Names of the corrections there are."""
        return correction_names()

    def transform(self, step: Step, model: Model, context: StepContext) -> Transformed:
        """The changed model, who took part, and notes."""
        return apply_transform(step, model, context)

    def correct(self, step: Step, quantized: QuantizedModel, context: StepContext) -> Corrected:
        """The changed numbers, who took part, and notes."""
        return apply_correction(step, quantized, context)


INSTALLED = StepLibrary()
"""The transforms and corrections that come with roundoff."""


# Corrections one after the other; what was computed before from the same numbers is not computed again.

# Each holds the codes of all weights.
_MOST_KEPT = 6


@dataclass(frozen=True, slots=True)
class _Key:
    step: Step
    model: str
    quantizers: str


class Corrections:
    """Applies corrections to quantized models with the same samples for the same chip.

    Args:
        library: Knows them.
        context: What they work with.
    """

    def __init__(self, library: StepLibrary, context: StepContext) -> None:
        self._library, self._context = library, context
        self._known: OrderedDict[_Key, Corrected] = OrderedDict()
        # There is one float model for each chain of transforms.
        self._hashes = ModelHashes()

    def apply(self, step: Step, quantized: QuantizedModel) -> Corrected:
        """A quantized model with other codes.

        Raises:
            BadInput: There is no such correction, option or node, or the samples do not fit the model.
            ModelFailed: The model cannot be run.
        """
        key = _Key(step, self._hashes.of(quantized.float_model), quantizer_hash(quantized.quantizers))
        if key not in self._known:
            self._known[key] = self._library.correct(step, quantized, self._context)
            while len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]
