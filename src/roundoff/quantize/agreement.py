"""How the outputs of two models agree when both are fed the same samples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from roundoff.core.coverage import Coverage, Doubt, FlatOutput, Judgement, LeftOut, OutputCoverage, Share, Unjudged
from roundoff.core.names import shown
from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.tensors import Array
from roundoff.errors import RoundoffError
from roundoff.graph.interface import OutputPart, output_parts, outputs, random_outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import by_number
from roundoff.graph.shapes import values
from roundoff.measure.classes import IndexCounts, is_index, same_classes
from roundoff.measure.metrics import OutputAgreement, Status, TensorScore, score, sqnr_db
from roundoff.measure.pairs import PairSums, measure_pair
from roundoff.measure.verdicts import SampleSanity, ValueTally, index_doubts, index_scores, judge
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import decibels_message
from roundoff.run.bench import Bench, spread
from roundoff.run.capture import Samples

if TYPE_CHECKING:
    from roundoff.measure.tokens import TokenMeter, TokenScores

# Outputs that are no tensors of numbers: what they are, and whether two of them are the same.


def without_numbers(output: Any) -> str:
    """Why an output of a run cannot be measured; empty when it is a tensor of numbers or truth values."""
    if not isinstance(output, np.ndarray):
        return "it is a sequence or map, not a tensor" if isinstance(output, list | dict) else "it holds nothing"
    return "" if output.dtype.kind in "fiub" else "it holds text, not numbers"


def same_output(ours: Any, theirs: Any) -> bool:
    """Whether two outputs that are no tensors of numbers are equal, to the last element."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same_output, ours, theirs))
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return ours.keys() == theirs.keys() and all(same_output(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        return np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == theirs.dtype.kind == "f")
    return bool(ours == theirs)


# Outputs with more axes are maps or sequences; a largest element in each row of them means nothing.
_CLASSIFIER_RANK = 2

JUDGE_SHARE = 0.25
"""Of a limited time this part of what is left goes to the judge."""

JUDGED_SAMPLES = 64
"""On so many samples, evenly spaced, outputs are judged: by `quantize`, `layers` and `diagnose` alike."""


@dataclass(frozen=True, slots=True)
class JudgedOutputs:
    """How the outputs of a quantized model agree with those of the float one, and what that is worth.

    Attributes:
        agreement: How each output agrees.
        parts: The same of slices of an output that own branches of the network compute; none where there are none.
        judgement: The grade, with what it rests on.
        tokens: What a language model lost, token by token; None where it is none.
        errors: Energy of the error of each sample, by output; none of those that are no tensors of numbers.
    """

    agreement: tuple[OutputAgreement, ...]
    parts: tuple[OutputAgreement, ...]
    judgement: Judgement
    tokens: "TokenScores | None" = None
    errors: Mapping[str, Array] = field(default_factory=dict)


def judge_outputs(  # noqa: PLR0913 - what to run on what, and how much it may take
    reference: Model,
    candidate: Model | None,
    samples: Samples,
    *,
    indices: Sequence[int] | None = None,
    deadline: Deadline = NO_DEADLINE,
    hurried: bool = False,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> JudgedOutputs:
    """Run two models with the same inputs and outputs side by side, and judge the second.

    Samples that hold NaN, or for which the reference gives nothing finite, are not measured on; that is a doubt.

    Args:
        reference: Is taken for right.
        candidate: Is judged; None to judge only whether samples and reference are any ground for a verdict.
        samples: What both are fed.
        indices: Which of the samples; those that every command judges on by default.
        deadline: When to be done; what is left then is not judged on.
        hurried: Whether there was no time to make the candidate as it should be; that is a doubt.
        threads: Threads per node.
        progress: Told of every sample.

    Raises:
        BadInput: A sample does not fit.
        ModelFailed: A model cannot be run.
    """
    total = len(samples.names)
    chosen = spread(total, JUDGED_SAMPLES) if indices is None else tuple(indices)
    bench = Bench(reference, samples, threads=threads)
    networks = (model for model in (reference, candidate) if model is not None)
    computed = bench.beside(chosen, *networks, deadline=deadline)
    chance = random_outputs(reference)
    tallies = [_OutputTally(name, chance=chance.get(name, "")) for name in outputs(reference)]
    parts: dict[str, list[tuple[OutputPart, _OutputTally]]] | None = None
    sanity, late, tokens = SampleSanity(), len(chosen), None
    progress.start("comparing outputs", len(chosen))
    try:
        for index, (feed, (left, *others)) in zip(chosen, computed, strict=False):
            late -= 1
            right = others[0] if others else left
            if sanity.add(shown(samples.names[index]), feed, left):
                if parts is None:
                    parts = _parts(reference, feed, left)
                tokens = _by_token(tokens, feed, left, right)
                for tally, ours, theirs in zip(tallies, left.values(), right.values(), strict=True):
                    tally.add(ours, theirs)
                    for part, own in parts.get(tally.name, ()):
                        if getattr(ours, "shape", None) == getattr(theirs, "shape", None):
                            own.add(part.of(ours), part.of(theirs))
            progress.advance()
    finally:
        progress.finish()
    left_out = (
        LeftOut("few_suffice", total - len(chosen)),
        LeftOut("time", late),
        LeftOut("nonfinite", len(sanity.unusable), sanity.unusable[:1]),
    )
    measured = len(chosen) - late - len(sanity.unusable)
    covered = Share(total, measured, tuple(each for each in left_out if each.count))
    slices = [own for each in (parts or {}).values() for _, own in each]
    # One sample is too few, but where the time ran out more of them would change nothing.
    doubts = tuple(each for each in sanity.doubts() if not (late and each.kind == "single"))
    doubts = (*doubts, *((Doubt("time"),) if late or hurried else ()))
    return _graded(tallies, slices, None if tokens is None else tokens.result(), covered, doubts)


def _by_token(
    meter: "TokenMeter | None", feed: Mapping[str, Array], ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> "TokenMeter | None":
    """What tokens of one more sample lose, by the first output, where that can be one score per token and word."""
    first = next(iter(ours), "")
    if getattr(ours.get(first), "ndim", 0) != _TOKEN_SCORES_RANK:
        return meter
    from roundoff.measure.tokens import TokenMeter

    meter = meter or TokenMeter()
    meter.add(feed, ours[first], theirs[first])
    return meter


_TOKEN_SCORES_RANK = 3


def _graded(
    tallies: "Sequence[_OutputTally]",
    slices: "Sequence[_OutputTally]",
    tokens: "TokenScores | None",
    covered: Share,
    doubts: tuple[Doubt, ...],
) -> JudgedOutputs:
    """What was seen of outputs and of their slices, with what it is worth."""
    scores = {tally.name: tally.judged for tally in (*tallies, *slices) if tally.judged is not None}
    counts = {tally.name: tally.indices for tally in tallies if tally.indices is not None}
    doubts = (*doubts, *index_doubts(counts))
    if tokens is not None and tokens.doubtful:
        doubts = (*doubts, Doubt("tokens", tokens.tokens))
    judgement = judge(scores, Coverage(_coverage(tallies), samples=covered), doubts=doubts)
    judged = [tally for tally in (*tallies, *slices) if tally.judged is not None]
    flat = tuple(
        FlatOutput(each.name, *(each.values.lost or (0, 0)))
        for each in judged
        if each.values.lost is not None or each.values.drowned
    )
    judgement = replace(judgement, flat=flat)
    if tokens is not None and tokens.lost:
        # Scores of words may be alike by every distance, and the next token is not what it was.
        judgement = replace(judgement, grade="lossy", limits=tokens.limits)
    found, parts = (tuple(each.result() for each in some) for some in (tallies, slices))
    errors = {tally.name: np.array(tally.errors) for tally in tallies if tally.errors}
    return JudgedOutputs(found, parts, judgement, tokens, errors)


def _parts(
    model: Model, feed: Mapping[str, Array], found: Mapping[str, Any]
) -> "dict[str, list[tuple[OutputPart, _OutputTally]]]":
    """The slices of each output that has any, to be told apart."""
    numbers = {name: each.shape for name, each in found.items() if not without_numbers(each)}
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    shapes = {value.name: value.shape for value in inferred if value.shape is not None}
    grouped: dict[str, list[tuple[OutputPart, _OutputTally]]] = {}
    for part in output_parts(model, numbers, shapes):
        if part.axis is not None:
            grouped.setdefault(part.output, []).append((part, _OutputTally(part.source)))
    return grouped


def _coverage(tallies: "Sequence[_OutputTally]") -> OutputCoverage:
    why = {tally.name: tally.unjudged for tally in tallies if not tally.empty}
    return OutputCoverage(
        tuple(name for name, each in why.items() if each is None),
        tuple(each for each in why.values() if each is not None),
        indices=tuple(
            tally.name for tally in tallies if tally.indices is not None and why.get(tally.name) is None
        ),
    )


class _OutputTally:
    """What was seen of one output."""

    def __init__(self, name: str, *, chance: str = "") -> None:
        self.name = name
        self._chance = chance and f"it depends on {chance}, which gives other values in each run"
        self._moments: PairSums | None = None
        self.errors: list[float] = []
        self.values = ValueTally()
        self._samples = self._rows = self._agreeing = self._differing = 0
        self.indices: IndexCounts | None = None
        self._damaged = False
        self._problem, self._unreadable = "", False

    def add(self, ours: Array, theirs: Array) -> None:
        self._samples += 1
        obstacle = without_numbers(ours)
        if obstacle:
            self._differing += not same_output(ours, theirs)
            same = (
                english("differs in {differing} {differing:sample|samples}", differing=self._differing)
                if self._differing
                else english("is the same")
            )
            self._problem, self._unreadable = f"{obstacle}; it {same}", True
            return
        if ours.shape != theirs.shape:
            self._problem = f"shapes differ: {list(ours.shape)} and {list(theirs.shape)}"
            return
        moments = measure_pair(ours, theirs)
        self._moments = moments if self._moments is None else self._moments.merge(moments)
        self.errors.append(moments.error_energy)
        if is_index(ours.dtype):
            self.indices = (self.indices or IndexCounts()).add(ours, theirs)
        elif ours.dtype.kind == "f":
            self._damaged = self._damaged or bool((np.isfinite(ours) & ~np.isfinite(theirs)).any())
            self.values.add(ours, theirs)
        if 1 <= ours.ndim <= _CLASSIFIER_RANK and ours.size and self.indices is None:
            agreeing, rows = same_classes(ours, theirs)
            self._rows, self._agreeing = self._rows + rows, self._agreeing + agreeing

    @property
    def unjudged(self) -> Unjudged | None:
        """Why nothing can be said of it; None where something can."""
        if self._chance:
            return Unjudged(self.name, "chance", self._chance)
        if self._unreadable:
            # Text and sequences that are the same are judged; how far others are apart nobody can say.
            return Unjudged(self.name, "not_numbers", self._problem) if self._differing else None
        if self._problem:
            return Unjudged(self.name, "shape", self._problem)
        if not self._samples or (self._moments is not None and self._moments.excluded and not self._moments.count):
            return Unjudged(self.name, "nonfinite")
        return None

    @property
    def empty(self) -> bool:
        """Whether it has no elements at all, and so nothing to judge."""
        return self._moments is not None and not (self._moments.count or self._moments.excluded)

    @property
    def judged(self) -> Mapping[str, float] | None:
        """What it is judged by; None where nothing can be said of it."""
        if self.unjudged is not None or self.empty:
            return None
        if self.indices is not None or self._moments is None:
            return index_scores(self.indices or IndexCounts())
        lost = self._damaged or self.values.lost is not None or self.values.drowned
        return {} if lost else score(self._moments).values

    def result(self) -> OutputAgreement:
        if self._chance:
            return OutputAgreement(self.name, self._samples, TensorScore("unreadable", {}, self._chance), None)
        if self._problem:
            status: Status = "unreadable" if self._unreadable else "shape"
            return OutputAgreement(self.name, self._samples, TensorScore(status, {}, self._problem), None)
        moments = self._moments
        if moments is None or not (moments.count or moments.excluded):
            detail = "it is empty" if self._samples else "no sample could be measured on"
            return OutputAgreement(self.name, self._samples, TensorScore("degenerate", {}, detail), None)
        if self.indices is not None:
            # A distance of indices is no size: only the share that is equal means anything.
            share = {"equal_share": self.indices.share}
            return OutputAgreement(
                self.name, self._samples, replace(score(moments), values=share, detail=""), None
            )
        top1 = self._agreeing / self._rows if self._rows else None
        return OutputAgreement(self.name, self._samples, score(moments), top1)


# Proof that a prepared model still computes what the original did: both are run on samples and compared.

# Largest difference that counts as rounding, against the largest value of the output. Folding changes each weight
# by half a unit in the last place, and a deep network adds up some hundreds of such differences.
_TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One output of the original and of the prepared model.

    Attributes:
        output: Its name.
        max_abs_error: Largest difference.
        magnitude: Largest absolute value of the original's.
        sqnr_db: Energy of the original over energy of the difference, in decibels; infinite when they are equal.
        problem: Why the two cannot be compared, or differ beyond numbers; empty when they can.
    """

    output: str
    max_abs_error: float = 0.0
    magnitude: float = 0.0
    sqnr_db: float = float("inf")
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PreparationCheck:
    """What comparing an original and a prepared model gave.

    Attributes:
        outputs: One for each output.
        samples: On how many samples.
        tolerance: Largest difference, against the largest value of the output, that counts as float rounding.
        problem: Why the models could not be run; empty when they could.
        chance: Outputs that two runs cannot be compared by, each with the node that gives other values each time.
    """

    outputs: tuple[OutputCheck, ...]
    samples: int
    tolerance: float
    problem: str = ""
    chance: Mapping[str, str] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether all outputs are equal within float rounding."""
        return not self.problem and not any(map(self._differs, self.outputs))

    @property
    def notes(self) -> tuple[Message, ...]:
        """What the user should know: the largest difference if all is well, else each output that differs."""
        return (*self._differences(), *self._left_to_chance())

    def _left_to_chance(self) -> Iterator[Message]:
        for source in dict.fromkeys(self.chance.values()):
            names = [name for name, each in self.chance.items() if each == source]
            yield message("quantize.outputs_by_chance", source=source, names=", ".join(map(repr, names)))

    def _differences(self) -> tuple[Message, ...]:
        if self.problem:
            return (message("quantize.prepared_unchecked", why=self.problem),)
        bad = [output for output in self.outputs if self._differs(output)]
        if not self.outputs:
            return ()
        if not bad:
            worst = max(self.outputs, key=lambda output: output.max_abs_error, default=OutputCheck(""))
            if worst.max_abs_error == 0:
                return (message("quantize.prepared_equal_bits", count=self.samples),)
            return (message("quantize.prepared_equal", figures=self._figures(worst)),)
        return tuple(
            message(
                "quantize.prepared_differs", output=output.output, figures=output.problem or self._figures(output)
            )
            for output in bad
        )

    def _differs(self, output: OutputCheck) -> bool:
        return bool(output.problem) or output.max_abs_error > self.tolerance * output.magnitude

    def _figures(self, output: OutputCheck) -> Message:
        return message(
            "quantize.prepared_figures",
            # As many digits as are shown: documents are compared across machines.
            most=float(f"{output.max_abs_error:.3g}"),
            size=float(f"{output.magnitude:.3g}"),
            db=decibels_message(output.sqnr_db),
            count=self.samples,
            share=self.tolerance,
        )


def check_preparation(
    original: Model, prepared: Model, samples: Samples, *, count: int = 1, threads: int | None = None
) -> PreparationCheck:
    """Run both models on the first samples and compare their outputs; nothing is raised for what does not run.

    Args:
        original: The model before preparation.
        prepared: The model after it.
        samples: What both are fed.
        count: How many of the samples.
        threads: Threads per node.
    """
    count = min(count, len(samples.names))
    try:
        bench = Bench(original, samples, threads=threads)
        return compare_outputs(original, (pair for _, pair in bench.beside(range(count), original, prepared)))
    except RoundoffError as error:
        tolerance = _TOLERANCES[_coarsest_float(original)]
        return PreparationCheck((), count, tolerance, error.what, random_outputs(original))


def compare_outputs(original: Model, pairs: Iterable[Sequence[Mapping[str, Array]]]) -> PreparationCheck:
    """Compare what a model computes with what another form of it does.

    Args:
        original: The model.
        pairs: Outputs of both, sample by sample, in the same order.
    """
    chance, count = random_outputs(original), 0
    tallies = {name: _PreparationTally(name) for name in outputs(original) if name not in chance}
    for left, right in pairs:
        count += 1
        for (name, ours), theirs in zip(left.items(), right.values(), strict=True):
            if name in tallies:
                tallies[name].add(ours, theirs)
    results = tuple(tally.result() for tally in tallies.values())
    return PreparationCheck(results, count, _TOLERANCES[_coarsest_float(original)], chance=chance)


def _coarsest_float(model: Model) -> str:
    """The least exact float type that the model computes in, as far as its weights and inputs tell."""
    graph = model.proto.graph
    numbers = {tensor.data_type for tensor in graph.initializer}
    numbers.update(value.type.tensor_type.elem_type for value in (*graph.input, *graph.output))
    found = {kind.dtype for kind in map(by_number, numbers) if kind is not None}
    return max(
        (name for name in found if name in _TOLERANCES), key=lambda name: _TOLERANCES[name], default="float32"
    )


class _PreparationTally:
    """What was seen of one output."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._moments: PairSums | None = None
        self._problem = ""

    def add(self, ours: Array, theirs: Array) -> None:
        if without_numbers(ours):
            self._problem = self._problem or ("" if same_output(ours, theirs) else without_numbers(ours))
        elif ours.shape != theirs.shape:
            self._problem = english(
                "its shape is {shape} instead of {shape2}", shape=list(theirs.shape), shape2=list(ours.shape)
            )
        elif not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
            self._problem = english("values that are not finite are at other places")
        else:
            moments = measure_pair(ours, theirs)
            self._moments = moments if self._moments is None else self._moments.merge(moments)

    def result(self) -> OutputCheck:
        moments = self._moments
        if self._problem or moments is None or not moments.count:
            return OutputCheck(self._name, problem=self._problem)
        magnitude = max(abs(moments.reference.low), abs(moments.reference.high))
        return OutputCheck(self._name, moments.max_abs_error, magnitude, sqnr_db(moments))
