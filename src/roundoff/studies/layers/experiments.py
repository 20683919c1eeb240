"""Running the quantized network with some of its quantizers off, and looking at its outputs."""

import contextlib
import math
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import OutputPart, output_parts, outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.units import derived_constants, units
from roundoff.measure.classes import index_pair
from roundoff.measure.light_pairs import CodedValues, ErrorTotals, LightMeter, MeterJob
from roundoff.measure.metrics import cosine, relative_euclidean, sqnr_db
from roundoff.measure.verdicts import ThresholdSet
from roundoff.run.bench import FEW_SAMPLES, MORE_SAMPLES, Runnable, spread_over
from roundoff.run.block_chain import Chunk
from roundoff.run.capture import read_feed
from roundoff.run.variants import without_unread, written_quantizers
from roundoff.studies.layers.measurement import Arrays, LayerBench, code_meaning
from roundoff.studies.layers.result import Experiment

if TYPE_CHECKING:
    from roundoff.run.integer.machine import IntegerRunner

# What "in float" means for a unit: which quantizers are off then, and what a user types for it.


@dataclass(frozen=True, slots=True)
class UnitQuantizers:
    """Names of the quantizers that belong to a unit.

    Attributes:
        weights: Those of its weights and biases.
        constants: Those of its other constants.
        copies: Those that quantize once more, for this unit alone, what others have written.
        result: Those of the tensor it writes, whoever reads it, and of tensors that are only made of its values.
    """

    weights: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()
    result: frozenset[str] = frozenset()

    @property
    def inside(self) -> frozenset[str]:
        """All but those of what it writes."""
        return self.weights | self.constants | self.copies

    @property
    def all(self) -> frozenset[str]:
        """All of them."""
        return self.inside | self.result

    def rule(self, node: str) -> str:
        """What ``--set`` takes for a node of the unit to have all but its result in float."""
        return f"{node}=float" if self.constants or self.copies else f"{node}=weight=float"


class UnitParts:
    """The quantizers of a network by the unit that is to blame for them.

    A unit in float has float weights and biases and writes float values, which its readers take as they are; what
    others write for it stays quantized, because that is their affair.

    Args:
        quantized: The network.
        forwarded: Tensors that are only passed on, with those their values come from.
    """

    def __init__(self, quantized: QuantizedModel, forwarded: Mapping[str, tuple[str, ...]]) -> None:
        graph = quantized.float_model.proto.graph
        constant = derived_constants(graph)
        unit_of = units(quantized.float_model, quantized.quantizers).unit_of
        self._weights: dict[str, set[str]] = {}
        self._constants: dict[str, set[str]] = {}
        self._copies: dict[str, set[str]] = {}
        self._results: dict[str, set[str]] = {}
        for quantizer in quantized.quantizers:
            readers = {unit_of.get(consumer.node, consumer.node) for consumer in quantizer.consumers}
            if quantizer.tensor in constant:
                held = self._constants if quantizer.kind == "activation" else self._weights
                for unit in readers:
                    held.setdefault(unit, set()).add(quantizer.name)
                continue
            self._results.setdefault(quantizer.tensor, set()).add(quantizer.name)
            if quantizer.after and len(readers) == 1:
                self._copies.setdefault(readers.pop(), set()).add(quantizer.name)
        self._made_of: dict[str, list[str]] = {}
        for tensor, sources in forwarded.items():
            for source in sources:
                self._made_of.setdefault(source, []).append(tensor)

    def of(self, tensor: str, unit: str) -> UnitQuantizers:
        """The quantizers of the unit that writes a tensor.

        Args:
            tensor: The tensor.
            unit: Its unit; empty for an input of the network.
        """
        result: set[str] = set()
        reached = [tensor]
        for name in reached:
            result |= self._results.get(name, set())
            reached += [made for made in self._made_of.get(name, ()) if made not in reached]
        return UnitQuantizers(
            weights=frozenset(self._weights.get(unit, ())),
            constants=frozenset(self._constants.get(unit, ())),
            copies=frozenset(self._copies.get(unit, ())),
            result=frozenset(result),
        )


def switched_on(quantizers: Iterable[Quantizer], off: Collection[str]) -> tuple[Quantizer, ...]:
    """The quantizers that are on when some are off.

    A bias whose input or weight is in float has nothing to take its scale from, and is in float too.
    """
    everything = tuple(quantizers)
    in_float = {
        consumer.node
        for quantizer in everything
        if quantizer.name in off and quantizer.kind != "bias"
        for consumer in quantizer.consumers
    }
    return tuple(
        quantizer
        for quantizer in everything
        if quantizer.name not in off
        and not (quantizer.kind == "bias" and any(each.node in in_float for each in quantizer.consumers))
    )


# An error beyond measure, such as NaN or another shape, counts as this many times the output's energy.
_ENDLESS = 1e6
# Float outputs are kept for all experiments; samples beyond this are left out.
_MOST_KEPT_BYTES = 1 << 26

Opener = Callable[[Sequence[Quantizer]], Runnable[Arrays]]
"""Makes the network in which these quantizers are on; it computes the outputs, by their names."""


class _InOnnxruntime:
    """The graph of copies with nothing but the quantized network in it, or without quantizers the float one."""

    def __init__(self, layers: LayerBench, quantizers: Sequence[Quantizer], threads: int) -> None:
        model = layers.quantized.float_model
        network = replace(layers.quantized, quantizers=tuple(quantizers))
        copies = layers.copies(network, ("accumulated",))
        written = written_quantizers(model, Edges(model, network.quantizers))
        taps = {name: copies.taps[name]["accumulated"] for name in outputs(model) if name in copies.taps}
        self._meaning = {name: code_meaning(written[name]) for name, each in taps.items() if each.coded}
        self._places = {name: each.name for name, each in taps.items()}
        asked = tuple(self._places.values())
        # Outputs of the float network are kept, and would hold on to all memory of their session.
        self._network = layers.bench(threads).open(
            without_unread(copies.model, asked), tensors=asked, keep_memory=bool(quantizers)
        )

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> Arrays:
        found = self._network.run(feed, sample=sample)
        arrays = {name: found[place] for name, place in self._places.items()}
        return arrays | {name: CodedValues(arrays[name], *each) for name, each in self._meaning.items()}

    def stop(self) -> None:
        self._network.stop()


class _InIntegers:
    def __init__(self, runner: "IntegerRunner", names: Sequence[str]) -> None:
        self._runner, self._names = runner, names

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> Arrays:
        return dict(self._runner.run(feed, self._names, sample=sample).values)

    def stop(self) -> None:
        """A node that is computed with integers is finished first."""


def reference_runs(layers: LayerBench, threads: int) -> Opener:
    """Networks in fake quantization."""
    return lambda quantizers: _InOnnxruntime(layers, quantizers, threads)


def integer_runs(layers: LayerBench, arithmetic: Arithmetic, threads: int) -> Opener:
    """Networks in exact integers; without any quantizer it is the float network in onnxruntime."""
    in_float = reference_runs(layers, threads)
    model = layers.quantized.float_model

    def open_network(quantizers: Sequence[Quantizer]) -> Runnable[Arrays]:
        from roundoff.run.integer.machine import IntegerRunner

        if not quantizers:
            return in_float(())
        return _InIntegers(IntegerRunner(model, quantizers, arithmetic, threads=threads), outputs(model))

    return open_network


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """What came of an experiment.

    Attributes:
        found: Its scores.
        loss: How much of the outputs is lost, summed over them: the energy of the error over that of the output
            where that is small, and its logarithm where it is large.
    """

    found: Experiment
    loss: float


class Experiments:
    """Experiments with one network, on the same few samples.

    Args:
        layers: The network and the samples.
        indices: All samples.
        thresholds: What the outputs must keep.
        open_network: Makes networks.
        workers: Samples that may run at a time.

    Attributes:
        samples: How many samples were fed in the last experiment.
    """

    def __init__(
        self,
        layers: LayerBench,
        indices: Sequence[int],
        *,
        thresholds: ThresholdSet,
        open_network: Opener,
        workers: int = 1,
    ) -> None:
        self._layers, self._thresholds, self._open = layers, thresholds, open_network
        self._indices, self._workers = indices, workers
        self._known: dict[tuple[int, frozenset[str]], ExperimentOutcome] = {}
        self._exact: dict[int, list[Arrays]] = {}
        self._told_apart: list[OutputPart] | None = None
        self.samples = 0

    def run(self, off: Collection[str]) -> ExperimentOutcome:
        """Run the network with these quantizers off, on few samples."""
        return self._outcome(frozenset(off), FEW_SAMPLES)

    def confirm(self, off: Collection[str]) -> tuple[ExperimentOutcome, ExperimentOutcome]:
        """Run it as it is and with these quantizers off, on more samples."""
        return self._outcome(frozenset(), MORE_SAMPLES), self._outcome(frozenset(off), MORE_SAMPLES)

    def _outcome(self, off: frozenset[str], most: int) -> ExperimentOutcome:
        most = min(most, len(self._indices))
        if most not in self._exact:
            self._exact = {most: self._in_float(most)}
        self.samples = len(self._exact[most])
        if (most, off) not in self._known:
            self._known[most, off] = self._run(off, most)
        return self._known[most, off]

    def _computed(
        self, quantizers: Sequence[Quantizer], samples: Sequence[int]
    ) -> Generator[tuple[Chunk, Arrays], None, None]:
        """The outputs for each sample when some quantizers are on."""
        # A single sample waits for nobody, and needs no thread of its own.
        workers = self._workers if self._workers > 1 else 0
        return self._layers.bench(self._layers.budget.cores).stream(
            self._open(quantizers), samples, workers=workers
        )

    def _in_float(self, most: int) -> list[Arrays]:
        """The outputs of the float network for the first samples of some that fit in memory."""
        exact: list[Arrays] = []
        kept = 0
        with contextlib.closing(self._computed((), spread_over(self._indices, most))) as computed:
            for _, arrays in computed:
                exact.append(arrays)
                kept += sum(getattr(each, "nbytes", 0) for each in arrays.values())
                if kept > _MOST_KEPT_BYTES:
                    break
        return exact

    def _run(self, off: frozenset[str], most: int) -> ExperimentOutcome:
        quantizers, expected = self._layers.quantized.quantizers, self._exact[most]
        # The samples whose float outputs were kept: the first of those chosen, not as many others evenly spaced.
        chosen = spread_over(self._indices, most)[: len(expected)]
        on = switched_on(quantizers, off)
        meter = LightMeter()
        totals: dict[OutputPart, ErrorTotals | None] = {part: ErrorTotals() for part in self._parts(expected[0])}
        with contextlib.closing(self._computed(on, chosen)) as computed:
            for exact, (_, arrays) in zip(expected, computed, strict=True):
                for part, total in totals.items():
                    ours, theirs = (_cut(part, each[part.output]) for each in (exact, arrays))
                    if total is not None and not _measure(meter, ours, theirs, total):
                        totals[part] = None
                self._layers.progress.advance()
        left = {each.name for each in on}
        switched_off = [each.name for each in quantizers if each.name not in left]
        return _outcome(list(totals.values()), switched_off, self._thresholds)

    def _parts(self, exact: Arrays) -> list[OutputPart]:
        """What to tell apart at the outputs: scores that vanish do not show beside boxes in hundreds of pixels."""
        model, samples = self._layers.quantized.float_model, self._layers.samples
        if self._told_apart is None:
            numbers = {name: each.shape for name, each in exact.items() if _has_numbers(each)}
            feed = {name: array.shape for name, array in read_feed(model, samples, self._indices[0]).items()}
            shapes = {each.name: each.shape for each in values(model, feed) if each.shape is not None}
            others = [OutputPart(name) for name in exact if name not in numbers]
            self._told_apart = [*output_parts(model, numbers, shapes), *others]
        return self._told_apart


def _has_numbers(array: Any) -> bool:
    return getattr(array, "shape", None) is not None and array.dtype.kind in "fiub"


def _cut(part: OutputPart, array: Any) -> Any:
    """A part of an output; codes of one are cut with it."""
    if part.axis is None:
        return array
    if isinstance(array, CodedValues):
        return replace(array, codes=np.ascontiguousarray(part.of(array.codes)))
    return np.ascontiguousarray(part.of(array)) if array.ndim > part.axis else array


def _measure(meter: LightMeter, reference: Any, candidate: Any, totals: ErrorTotals) -> bool:
    """Take in one output of one sample; False when both cannot be compared."""
    if not _has_numbers(reference):
        return True  # no numbers: nothing is lost, and nothing gained
    if (candidate.codes if isinstance(candidate, CodedValues) else candidate).shape != reference.shape:
        return False
    with np.errstate(all="ignore"):
        if not isinstance(candidate, CodedValues):
            reference, candidate = index_pair(reference, candidate)
        meter.measure([MeterJob(reference, [candidate], [totals])])
    return True


def _outcome(
    totals: Sequence[ErrorTotals | None], off: Sequence[str], thresholds: ThresholdSet
) -> ExperimentOutcome:
    loss = math.fsum(
        math.log1p(_ENDLESS if total is None else min(total.noise_ratio, _ENDLESS)) for total in totals
    )
    worst = (math.inf, 1.0)
    agrees = True
    for total in totals:
        if total is None or total.noise_ratio == math.inf:
            worst, agrees = (-math.inf, 0.0), False
        elif total.count:
            moments = total.sums()
            scores = {"sqnr_db": sqnr_db(moments), "cosine": cosine(moments)}
            agrees &= thresholds.holds(scores | {"relative_euclidean": relative_euclidean(moments)})
            agrees &= not any(total.nonfinite)
            worst = min(worst, (scores["sqnr_db"], scores["cosine"]))
    return ExperimentOutcome(Experiment(tuple(off), *worst, agrees), loss)


# The proof that few units make the loss: put into float, they take most of it away.
#
# Estimates say which units to try; nothing is claimed of a unit that was not tried.

# Few units make the loss when without them it is at least this much smaller: where the outputs are good then, and
# where they are not and more is wrong than these units.
_HALF, _MOST_OF_IT = 0.5, 0.75
# A set as good as a larger one takes at least this part of what that takes.
_AS_GOOD = 0.9
# A unit, or a part of one, is needed when without it at least this part of the gain is lost.
_NEEDED = 0.1
# Which part of a unit it is that costs so much is looked into for so many units.
_MOST_TAKEN_APART = 4


class Tester(Protocol):
    """Runs the network with quantizers off."""

    def run(self, off: Collection[str]) -> ExperimentOutcome:
        """What the outputs are then, on few samples."""
        ...

    def confirm(self, off: Collection[str]) -> tuple[ExperimentOutcome, ExperimentOutcome]:
        """What they are with all quantizers on, and then, on more samples than those they were chosen by."""
        ...


@dataclass(frozen=True, slots=True)
class Role:
    """What was measured of one unit of a set that takes most of the loss away.

    Attributes:
        inside: Whether its weights have to be in float.
        result: Whether what it writes has to be in float.
        costlier: The part that costs more when it is quantized again; empty when not tried.
        quantized_again: The outputs when it alone is quantized again; None where it is the only one.
        weights_again: When its weights are, and what it reads.
        result_again: When what it writes is.
    """

    inside: bool
    result: bool
    costlier: str = ""
    quantized_again: Experiment | None = None
    weights_again: Experiment | None = None
    result_again: Experiment | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """What was tried, and what came of it.

    Attributes:
        holds: Whether few units take most of the loss away.
        before: The outputs as they are.
        after: The outputs with these units, or the parts of them that matter, in float.
        tried: The tensors these units write.
        roles: What of each unit matters, where the proof holds.
    """

    holds: bool
    before: ExperimentOutcome
    after: ExperimentOutcome
    tried: tuple[str, ...]
    roles: Mapping[str, Role] = field(default_factory=dict)


def prove(
    tester: Tester, parts: Callable[[str], UnitQuantizers], orders: Sequence[Sequence[str]], *, limit: int
) -> Proof:
    """Find few units that take most of the loss away, or see that the likeliest do not.

    Args:
        tester: Runs experiments.
        parts: The quantizers of the unit that writes a tensor.
        orders: Tensors of units, the likeliest first; one order after the other is tried.
        limit: How many units are few.
    """
    return _ProofSearch(tester, parts, tester.run(())).prove([list(order[:limit]) for order in orders])


def takes_most(before: ExperimentOutcome, after: ExperimentOutcome) -> bool:
    """Whether an outcome keeps the thresholds and half of what another has lost, or else most of it."""
    gained = before.loss - after.loss
    return gained > 0 and gained >= (_HALF if after.found.agrees else _MOST_OF_IT) * before.loss


@dataclass(frozen=True, slots=True)
class _ProofSearch:
    tester: Tester
    parts: Callable[[str], UnitQuantizers]
    before: ExperimentOutcome

    def prove(self, sets: Sequence[list[str]]) -> Proof:
        # The estimate only orders units, so that a handful of runs is enough: the first few all at once, then the
        # shortest beginning of the list that does as well (by halving), then each unit left out once, then each
        # unit's weights and result apart. What is left is confirmed on samples that nothing was chosen by.
        chosen: list[str] = []
        after = self.before
        for tried in sets:
            outcome = self._without(tried)
            if outcome.loss < after.loss or not chosen:
                chosen, after = tried, outcome
            if takes_most(self.before, after):
                break
        if not takes_most(self.before, after):
            return Proof(False, self.before, after, tuple(chosen))
        chosen = self._needed(self._shortest(chosen, after))
        first = chosen[:_MOST_TAKEN_APART]
        roles = {unit: self._role(unit, chosen, taken_apart=unit in first) for unit in chosen}
        whole, least = self._without(chosen), self._least(roles)
        if least.loss - whole.loss > (1 - _AS_GOOD) * self._gain(whole):  # parts that only matter together
            roles = {unit: _whole(role, self.parts(unit)) for unit, role in roles.items()}
            least = whole
        # Units that were chosen on few samples look better on these than they are.
        before, after = self.tester.confirm(least.found.switched_off)
        if not takes_most(before, after):
            return Proof(False, before, after, tuple(chosen))
        return Proof(True, before, after, tuple(chosen), roles)

    def _gain(self, outcome: ExperimentOutcome) -> float:
        return self.before.loss - outcome.loss

    def _without(self, units: Collection[str]) -> ExperimentOutcome:
        return self.tester.run({name for unit in units for name in self.parts(unit).all})

    def _shortest(self, units: list[str], after: ExperimentOutcome) -> list[str]:
        """The shortest beginning of a list that is as good as the whole."""
        low, high = 1, len(units)
        while low < high:
            middle = (low + high) // 2
            outcome = self._without(units[:middle])
            good = self._gain(outcome) >= _AS_GOOD * self._gain(after) and takes_most(self.before, outcome)
            low, high = (low, middle) if good else (middle + 1, high)
        return units[:high]

    def _needed(self, units: list[str]) -> list[str]:
        """The units without those that can be quantized again at no cost, the least likely first."""
        kept = list(units)
        for unit in reversed(units):
            others = [each for each in kept if each != unit]
            if not others:
                break
            with_all, without = self._without(kept), self._without(others)
            if without.loss - with_all.loss < _NEEDED * self._gain(with_all) and takes_most(self.before, without):
                kept = others
        return kept

    def _role(self, unit: str, units: Sequence[str], *, taken_apart: bool) -> Role:
        mine, others = self.parts(unit), [each for each in units if each != unit]
        again = self._without(others).found if others else None
        if not (mine.inside and mine.result and taken_apart):
            return Role(bool(mine.inside), bool(mine.result), quantized_again=again)
        off = {name for each in others for name in self.parts(each).all}
        whole = self._without(units)
        weights, result = self.tester.run(off | mine.result), self.tester.run(off | mine.inside)
        least = _NEEDED * self._gain(whole)
        needed = weights.loss - whole.loss >= least, result.loss - whole.loss >= least
        if not any(needed):
            needed = True, True
        costlier = "inside" if weights.loss > result.loss else "result"
        return Role(*needed, costlier, again, weights.found, result.found)

    def _least(self, roles: Mapping[str, Role]) -> ExperimentOutcome:
        off: set[str] = set()
        for unit, role in roles.items():
            mine = self.parts(unit)
            off |= (mine.inside if role.inside else set()) | (mine.result if role.result else set())
        return self.tester.run(off)


def _whole(role: Role, parts: UnitQuantizers) -> Role:
    """The same with all of the unit in float."""
    return Role(
        bool(parts.inside),
        bool(parts.result),
        role.costlier,
        role.quantized_again,
        role.weights_again,
        role.result_again,
    )
