"""How error grows along a network when some of its quantizers are on, as data."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from roundoff.core.coverage import Judgement
from roundoff.messages.message import Message

BASE_LINE = "all"
"""Name of the curve of the fully quantized model, which every result has."""

Dominance = Literal["weights", "activations", "both", "neither"]


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve to be measured.

    Attributes:
        name: What to call it.
        quantizers: Names of the quantizers that are on; all others are off.
    """

    name: str
    quantizers: tuple[str, ...]


def all_but(names: str, *, more: int = 0) -> str:
    """The name of a curve with everything quantized but some; pages say it in their language.

    Args:
        names: What is left out, or the first of it.
        more: How many others are.
    """
    return f"all but {names}" + (f" and {more} more" if more else "")


@dataclass(frozen=True, slots=True)
class CurveNode:
    """A place on the curves: what one node computes.

    Attributes:
        order: Position on the curves, from 0.
        node: The node.
        op_type: Its operation.
        tensor: What it computes.
        output: Whether that is an output of the network.
    """

    order: int
    node: str
    op_type: str
    tensor: str
    output: bool


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """The error of one model against the float model, at every place.

    Attributes:
        name: What it is called.
        quantizers: Names of the quantizers that are on.
        values: The metric at each place, all samples as one tensor; None where there is no score.
        averages: Each value replaced by the mean of all up to it; see `running_means`.
        worst: The metric in the sample with the worst value, at each place.
        worst_samples: That sample.
        sqnr_db: Energy of the float tensor over energy of the error, all samples together; None where there is no
            score, -inf where the model alone has values that are not finite.
        sample_sqnr_db: The same at each place for each of the first samples, NaN where there is none; of the base
            line only, and empty in documents of older versions.
    """

    name: str
    quantizers: tuple[str, ...]
    values: tuple[float | None, ...]
    averages: tuple[float | None, ...]
    worst: tuple[float | None, ...]
    worst_samples: tuple[str, ...]
    sqnr_db: tuple[float | None, ...]
    sample_sqnr_db: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Jump:
    """A place where the error of the base line is much larger than at the places before it.

    Attributes:
        order: The place.
        before_db: Signal to noise at the worst of the places it is computed from; None when these are inputs.
        after_db: Signal to noise here.
    """

    order: int
    before_db: float | None
    after_db: float


@dataclass(frozen=True, slots=True)
class Split:
    """What weights and activations do alone, as signal to noise in decibels.

    Attributes:
        weights: With only weights quantized.
        activations: With only activations quantized.
        everything: With everything quantized.
    """

    weights: float
    activations: float
    everything: float


@dataclass(frozen=True, slots=True)
class AccumulationVerdict:
    """What the curves say.

    Attributes:
        dominance: Whose quantization makes the error at the outputs; None when the curves of weights and of
            activations were not both measured, or weights cannot be judged.
        exact_weights: Whether the float weights are the values of their codes already, so that nothing shows what
            quantizing them cost; they are when the float network was made from a quantized one.
        output: The output that is worst off, a tensor; empty when no output could be compared.
        at_output: There.
        near_output: Medians over the last places before the outputs.
        near_places: How many places that is.
        together: Whether weights and activations together do clearly more than both alone.
        falls_at: The first place where the base line is below `fall_db`; None when it never is.
        fall_db: That level.
        recovers: Whether all outputs are above that level again.
        jumps: Where the base line's error jumps, the largest first.
    """

    dominance: Dominance | None
    exact_weights: bool
    output: str
    at_output: Split | None
    near_output: Split | None
    near_places: int
    together: bool
    falls_at: int | None
    fall_db: float
    recovers: bool
    jumps: tuple[Jump, ...]


@dataclass(frozen=True, slots=True)
class Accumulation:
    """Curves of accumulated error.

    Attributes:
        reference: Where the float network came from.
        samples: Names of the samples.
        metric: The metric of the curves.
        higher_is_better: Which way it is better.
        average: Whether the averages are to be shown rather than the values.
        nodes: The places, in execution order.
        curves: The base line first, then those asked for.
        verdict: What they say.
        notes: What the reader should know.
        preparation: What was noted when the model was prepared and quantized.
        judgement: What it rests on, and whether that allows a verdict; None in documents of older versions.
    """

    reference: str
    samples: tuple[str, ...]
    metric: str
    higher_is_better: bool
    average: bool
    nodes: tuple[CurveNode, ...]
    curves: tuple[MeasuredCurve, ...]
    verdict: AccumulationVerdict
    notes: tuple[Message, ...] = ()
    preparation: tuple[Message, ...] = ()
    judgement: Judgement | None = None

    def __post_init__(self) -> None:
        """Refuse curves that do not fit the places; documents may have been edited."""
        places = range(len(self.nodes))
        if not self.curves or [node.order for node in self.nodes] != list(places):
            raise ValueError("nodes are not numbered from 0 on, or there is no curve")
        falls = () if self.verdict.falls_at is None else (self.verdict.falls_at,)
        if any(order not in places for order in (*falls, *(jump.order for jump in self.verdict.jumps))):
            raise ValueError("an error falls or jumps at a node that is not there")
        for curve in self.curves:
            parts = (curve.values, curve.averages, curve.worst, curve.worst_samples, curve.sqnr_db)
            more = (curve.sample_sqnr_db,) if curve.sample_sqnr_db else ()
            if any(len(part) != len(self.nodes) for part in (*parts, *more)):
                raise ValueError(f"the curve {curve.name!r:.80} has not one value for each node")

    @property
    def base_line(self) -> MeasuredCurve:
        """The curve of the fully quantized model."""
        return self.curves[0]

    def shown(self, curve: MeasuredCurve) -> tuple[float | None, ...]:
        """The values of a curve as they are to be shown."""
        return curve.averages if self.average else curve.values


def running_means(values: Iterable[float | None]) -> tuple[float | None, ...]:
    """Each value replaced by the mean of all up to it.

    ``[1.0, 0.9, 0.9, 0.8]`` becomes ``[1.0, 0.95, 0.933, 0.9]``: curves that cross can then be compared.
    Missing and infinite values have no part in a mean; where nothing else came yet, the value stays what it is.
    """
    found: list[float | None] = []
    total, count = 0.0, 0
    for value in values:
        if value is not None and math.isfinite(value):
            total += value
            count += 1
        found.append(total / count if count else value)
    return tuple(found)
