"""Parts of a network: the quantizers they see, what they are fed, and where two runs of them differ most."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.diagnosis.ideal import options
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.registry import ENOUGH
from roundoff.diagnosis.repairable_model import edit
from roundoff.diagnosis.result import Finding, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, Suspect
from roundoff.graph.load import Model
from roundoff.graph.subgraph import ModelPart
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import english
from roundoff.run.session import open_session


def placed(quantizers: Sequence[Quantizer], part: ModelPart, preferred: Collection[str] = ()) -> list[Quantizer]:
    """Those that a part sees: of what its nodes read, and of what it hands on to others.

    Args:
        quantizers: All that are on.
        part: The part.
        preferred: Where readers outside get a tensor in several ways, one of these quantizers makes its output.
    """
    inside = set(part.nodes)
    leaving = {tensor: each.name for tensor, each in _leaving(quantizers, part, preferred)}
    found = []
    for each in quantizers:
        consumers = tuple(edge for edge in each.consumers if edge.node in inside)
        output = leaving.get(each.tensor) == each.name
        if consumers or output:
            found.append(replace(each, consumers=consumers, output=output))
    # What another one quantizes again comes along, though nobody else reads it.
    names = {each.name for each in found}
    needed = {each.after for each in found} - names
    before = [replace(each, consumers=(), output=False) for each in quantizers if each.name in needed]
    return [*before, *found]


def _leaving(
    quantizers: Sequence[Quantizer], part: ModelPart, preferred: Collection[str]
) -> Iterator[tuple[str, Quantizer]]:
    inside, written = set(part.nodes), set(part.writes)
    chosen: dict[str, Quantizer] = {}
    for each in quantizers:
        out = each.output or any(edge.node not in inside for edge in each.consumers)
        if each.tensor in written and out and (each.tensor not in chosen or each.name in preferred):
            chosen[each.tensor] = each
    yield from chosen.items()


# Parts of a network, fed with what the float network computes.

Feeds = list[dict[str, Array]]


@dataclass(slots=True)
class GoldenFeeds:
    """What the float network computes in some samples.

    Attributes:
        case: The network.
        places: The samples.
    """

    case: Case
    places: tuple[int, ...]
    _known: dict[str, list[Array]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the samples."""
        return [self.case.runner.feeds()[place][0] for place in self.places]

    def of(self, tensors: Sequence[str]) -> Feeds:
        """These tensors, by sample."""
        self._compute([name for name in tensors if name not in self._known])
        return [{name: self._known[name][at] for name in tensors} for at in range(len(self.places))]

    def _compute(self, names: Collection[str]) -> None:
        feeds = [self.case.runner.feeds()[place] for place in self.places]
        given = [name for name in names if name in feeds[0][1]]
        computed = [name for name in names if name not in feeds[0][1]]
        for name in given:
            self._known[name] = [feed[name] for _, feed in feeds]
        if computed:
            runner = self.case.runner
            indices = [runner.indices[place] for place in self.places]
            found = [arrays for [arrays] in runner.bench.run(indices, runner.bench.open(tensors=computed))]
            self._known |= {name: [arrays[name] for arrays in found] for name in computed}


def run_part(model: Model, feeds: Feeds) -> Feeds:
    """The outputs of a model, by sample."""
    session = open_session(model)
    names = [value.name for value in model.proto.graph.output]
    return [dict(zip(names, session.run(feed), strict=True)) for feed in feeds]


def fixed_shapes(arrays: Sequence[Mapping[str, Array]]) -> dict[str, tuple[int, ...]]:
    """Shapes of tensors that have the same one in every sample."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for each in arrays:
        for name, array in each.items():
            found.setdefault(name, set()).add(array.shape)
    return {name: next(iter(shapes)) for name, shapes in found.items() if len(shapes) == 1}


# What would be right in the place of blamed quantizers: the remedy of a finding, or the best that is known.

_WIDE_DTYPE = "s16"


@dataclass(frozen=True, slots=True, eq=False)
class BlamedQuantizers:
    """Quantizers to blame, and what would be right instead.

    Attributes:
        quantizers: Their names.
        fixes: Quantizers in their place; None for float.
        what: The same in words.
    """

    quantizers: frozenset[str]
    fixes: Fixes
    what: str


def blamed_quantizers(case: Case, finding: Finding) -> BlamedQuantizers | None:
    """The quantizers of a finding, with the first mending that takes away most of what float would.

    Args:
        case: The network.
        finding: The finding; its tensors say which quantizers, or without any its nodes.

    Returns:
        None where no quantizer belongs to it.
    """
    suspects = _suspects(case, finding)
    names = frozenset(name for each in suspects for name in each.quantizers)
    if not names:
        return None
    in_float: Fixes = dict.fromkeys(names)
    before, best = case.loss().value, case.loss(in_float).value
    for what, fixes in _candidates(case, finding, suspects):
        kept = {name: each for name, each in fixes.items() if name in names}
        if kept and before - case.loss(kept).value >= ENOUGH * (before - best):
            return BlamedQuantizers(names, kept, what)
    return BlamedQuantizers(names, in_float, english("in float"))


def _suspects(case: Case, finding: Finding) -> list[Suspect]:
    tensors, nodes = set(finding.tensors), set(finding.nodes)
    found = [each for each in case.facts.suspects if tensors & set(each.tensors)]
    return found or [each for each in case.facts.suspects if each.node in nodes]


def _candidates(case: Case, finding: Finding, suspects: Sequence[Suspect]) -> Iterator[tuple[str, Fixes]]:
    remedy = finding.remedy
    for change in () if remedy is None else remedy.changes:
        fixes = edit(case, change)
        if any(each is not None for each in fixes.values()):
            yield (english("with the remedy in place"), fixes)
    best: dict[str, Fixes] = {}
    for suspect in suspects:
        better = min(options(case.facts, suspect)[1], key=lambda each: each.loss, default=None)
        if better is not None:
            best[suspect.name] = better.fixes
    if best:
        yield (
            english("with the same bits at their best"),
            {name: each for fixes in best.values() for name, each in fixes.items()},
        )
    tensors = tuple(tensor for each in suspects for tensor in each.tensors)
    yield english("with 16 bits"), edit(case, RemedyChange("bits", tensors=tensors, value=_WIDE_DTYPE))


# Where two networks differ most: a tensor, or one slice of it, that one of them has clearly better.

BEST_DB = 60.0
"""Better than this is as good as exact."""

_SHARE_OF_WHOLE = 0.5
# A slice of fewer values is judged by chance, ...
_FEWEST_VALUES = 16
# ... one of more slices is no axis of channels, ...
_MOST_SLICES = 2048
# ... and one whose energy is less than this part of what others have on average holds nothing.
_SMALLEST_SHARE = 1e-9

Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Spot:
    """A tensor, or a slice of it.

    Attributes:
        tensor: The tensor.
        axis: Axis of the slice; None for all of it.
        index: Which slice.
    """

    tensor: str
    axis: int | None = None
    index: int = 0

    @property
    def text(self) -> str:
        """In words."""
        if self.axis is None:
            return repr(self.tensor)
        return english(
            "{tensor!r}, slice {index} of axis {axis}", tensor=self.tensor, index=self.index, axis=self.axis
        )

    def of(self, array: Array) -> Array:
        """Its elements."""
        return array if self.axis is None else array.take(self.index, axis=self.axis)


@dataclass(frozen=True, slots=True)
class Gap:
    """How much worse one network is at a spot than another.

    Attributes:
        spot: Where.
        faulty_db: Signal to noise of the worse one; at most `BEST_DB`.
        mended_db: Of the better one.
    """

    spot: Spot
    faulty_db: float
    mended_db: float

    @property
    def db(self) -> float:
        """The difference."""
        return self.mended_db - self.faulty_db


def largest_gap(exact: Sequence[Arrays], faulty: Sequence[Arrays], mended: Sequence[Arrays]) -> Gap | None:
    """The spot where faulty values are worse than mended ones.

    A whole tensor is told where it has at least half of the decibels that its worst slice has.

    Args:
        exact: What the values should be, by sample.
        faulty: What they are.
        mended: What they are without the fault.

    Returns:
        None where nothing can be compared.
    """
    whole: list[Gap] = []
    sliced: list[Gap] = []
    for tensor in exact[0] if exact else ():
        arrays = [[each[tensor] for each in side] for side in (exact, faulty, mended)]
        shapes = {array.shape for side in arrays for array in side}
        if any(array.dtype.kind not in "fiu" for side in arrays for array in side):
            continue
        whole.append(
            Gap(Spot(tensor), _db(*_energies(arrays[0], arrays[1])), _db(*_energies(arrays[0], arrays[2])))
        )
        if len(shapes) == 1:
            sliced += _slices(tensor, *(np.stack(side).astype(np.float64) for side in arrays))
    best, worst_slice = (max(gaps, key=lambda gap: gap.db, default=None) for gaps in (whole, sliced))
    if best is None or worst_slice is None:
        return best
    return best if best.db >= _SHARE_OF_WHOLE * worst_slice.db else worst_slice


def sqnr_at(spot: Spot, exact: Sequence[Arrays], other: Sequence[Arrays]) -> float:
    """Signal to noise at a spot, at most `BEST_DB`."""
    pairs = [[spot.of(each[spot.tensor]) for each in side] for side in (exact, other)]
    return _db(*_energies(pairs[0], pairs[1]))


def _energies(exact: Sequence[Array], other: Sequence[Array]) -> tuple[float, float]:
    signal = noise = 0.0
    for left, right in zip(exact, other, strict=True):
        if left.shape != right.shape:
            return 0.0, math.inf
        a, b = left.astype(np.float64), right.astype(np.float64)
        finite = np.isfinite(a)
        with np.errstate(over="ignore", invalid="ignore"):
            signal += float(np.square(a[finite]).sum())
            noise += float(np.nan_to_num(np.square(a[finite] - b[finite]), nan=math.inf).sum())
    return signal, noise


def _db(signal: float, noise: float) -> float:
    return max(-BEST_DB, min(BEST_DB, ratio_db(signal, noise))) if math.isfinite(noise) else -BEST_DB


def _slices(tensor: str, exact: Array, faulty: Array, mended: Array) -> Iterator[Gap]:
    """Every slice along every axis but that of samples; arrays have the samples as their first axis."""
    if not all(np.isfinite(each).all() for each in (exact, faulty, mended)):
        return
    power, faults, rest = np.square(exact), np.square(exact - faulty), np.square(exact - mended)
    for axis in range(1, exact.ndim - 1):
        count = exact.shape[axis + 1]
        if not 1 < count <= _MOST_SLICES or exact.size // count < _FEWEST_VALUES:
            continue
        others = tuple(at for at in range(exact.ndim) if at != axis + 1)
        signal, noise, left = (each.sum(axis=others) for each in (power, faults, rest))
        enough = signal > _SMALLEST_SHARE * signal.mean()
        for index in np.flatnonzero(enough):
            one = Spot(tensor, axis, int(index))
            yield Gap(
                one, _db(float(signal[index]), float(noise[index])), _db(float(signal[index]), float(left[index]))
            )


# The outputs of the whole network are clearly better from this on.
_BETTER_DB = 1.0


def clearly_better(before: Loss, after: Loss) -> bool:
    """Whether the outputs of a network lose clearly less, or agree only then."""
    return after.sqnr_db - before.sqnr_db >= _BETTER_DB or (after.agrees and not before.agrees)


def as_good_as(found: Loss, expected: Loss) -> bool:
    """Whether outputs lose no more than is expected; what nobody notices, such as rounding, is no loss."""
    return found.excess_db(expected) < _BETTER_DB
