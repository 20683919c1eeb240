"""A quantized network under diagnosis: who can be to blame, what is known of it, and some of its faults mended."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.quantizers import Kind, Quantizer, representable_range
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.core.tensors import Array
from roundoff.diagnosis.evidence import Damage, Observed, observe, quantize_values, safe_range
from roundoff.diagnosis.interventions import InterventionRunner
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.result import Measure
from roundoff.graph.insertion import Edges
from roundoff.graph.nodes import producers
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import Value, channel_axes, values, weight_axis
from roundoff.graph.transformers import TransformerParts, find_parts
from roundoff.graph.units import derived_constants, units
from roundoff.graph.weights import Weights, codes_of
from roundoff.messages.message import message
from roundoff.quantize.transforms.clamp_mask import MaskNeeds, mask_needs
from roundoff.run.bench import MORE_SAMPLES
from roundoff.run.capture import Samples, complete_values, read_feed
from roundoff.run.evaluators import Subset
from roundoff.run.variants import written_quantizers
from roundoff.studies.layers.attribution import forwarded_tensors

JOINING = frozenset({"Concat", "Add", "Sum", "Sub"})
"""Operations that bring tensors of different sizes together."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Quantizers that share one grid, because values only move between their tensors; mostly a single one.

    Attributes:
        name: Of the quantizer that stands for all.
        kind: What they quantize.
        quantizers: All of them.
        tensor: The tensor to blame.
        tensors: All tensors.
        node: The node to blame: the one that computes the tensor, or that has the weight; empty for an input.
        nodes: That one, and those computed in one unit with it.
        op_type: Operation of the node.
        join: The Concat or Add that brings their tensors together, or writes theirs; empty where there is none.
    """

    name: str
    kind: Kind
    quantizers: tuple[str, ...]
    tensor: str
    tensors: tuple[str, ...]
    node: str
    nodes: tuple[str, ...]
    op_type: str = ""
    join: str = ""


def same_grid(left: Quantizer, right: Quantizer) -> bool:
    """Whether two quantizers have the same codes for the same values."""
    return left.spec == right.spec and left.params.equals(right.params)


def find_suspects(quantized: QuantizedModel) -> tuple[Suspect, ...]:
    """All suspects of a network, in execution order."""
    return tuple(_SuspectFinder(quantized).find())


class _SuspectFinder:
    def __init__(self, quantized: QuantizedModel) -> None:
        model = quantized.float_model
        self._quantized = quantized
        self._edges = Edges(model, quantized.quantizers)
        self._nodes = {node.name: node for node in model.proto.graph.node}
        self._producers = producers(model.proto.graph.node)
        self._units = units(model, quantized.quantizers)
        self._constant = derived_constants(model.proto.graph)
        self._order = {name: at for at, node in enumerate(model.proto.graph.node) for name in node.output}
        self._leader: dict[str, str] = {}
        self._joins: dict[str, str] = {}

    def find(self) -> Iterator[Suspect]:
        everything = self._quantized.quantizers
        self._leader = {each.name: each.name for each in everything}
        self._unite_same_tensor(everything)
        self._unite_moved()
        self._unite_joined()
        groups: dict[str, list[Quantizer]] = {}
        for quantizer in everything:
            groups.setdefault(self._root(quantizer.name), []).append(quantizer)
        for root, members in groups.items():
            yield self._suspect(members, self._joins.get(root, ""))

    def _root(self, name: str) -> str:
        while self._leader[name] != name:
            name = self._leader[name]
        return name

    def _unite(self, left: str, right: str, join: str = "") -> None:
        first, second = self._root(left), self._root(right)
        self._leader[second] = first
        join = join or self._joins.get(first, "") or self._joins.get(second, "")
        if join:
            self._joins[first] = join

    def _unite_same_tensor(self, quantizers: Sequence[Quantizer]) -> None:
        first: dict[str, Quantizer] = {}
        for quantizer in quantizers:
            known = first.setdefault(quantizer.tensor, quantizer)
            if known is not quantizer and same_grid(known, quantizer):
                self._unite(known.name, quantizer.name)

    def _unite_moved(self) -> None:
        written = written_quantizers(self._quantized.float_model, self._edges)
        for tensor, sources in forwarded_tensors(self._quantized, written).items():
            for source in sources:
                if (
                    source in written
                    and source not in self._constant
                    and same_grid(written[source], written[tensor])
                ):
                    join = self._producers[tensor]
                    self._unite(
                        written[source].name, written[tensor].name, join.name if join.op_type in JOINING else ""
                    )

    def _unite_joined(self) -> None:
        """An Add whose operands and result share one scale."""
        written = written_quantizers(self._quantized.float_model, self._edges)
        for tensor, quantizer in written.items():
            node = self._producers.get(tensor)
            if node is None or node.op_type not in JOINING or node.op_type == "Concat":
                continue
            read = [self._edges.read_by(node.name, at) for at in range(len(node.input))]
            if all(each is not None and same_grid(each, quantizer) for each in read):
                for each in read:
                    if each is not None:
                        self._unite(each.name, quantizer.name, node.name)

    def _suspect(self, members: Sequence[Quantizer], join: str) -> Suspect:
        main = min(members, key=lambda each: self._order.get(each.tensor, -1))
        if join:
            written = set(self._nodes[join].output)
            main = next((each for each in members if each.tensor in written), main)
        node = self._blamed(main)
        if not join and node is not None and node.op_type in JOINING:
            join = node.name
        unit = self._units.members.get(self._units.unit_of.get(node.name, ""), ()) if node is not None else ()
        name = "" if node is None else node.name
        return Suspect(
            name=main.name,
            kind=main.kind,
            quantizers=tuple(each.name for each in members),
            tensor=main.tensor,
            tensors=tuple(dict.fromkeys((main.tensor, *(each.tensor for each in members)))),
            node=name,
            nodes=tuple(dict.fromkeys((*filter(None, [name]), *unit))),
            op_type="" if node is None else node.op_type,
            join=join if main.kind != "bias" else "",
        )

    def _blamed(self, quantizer: Quantizer) -> Any:
        """The node that has a constant, or computes a tensor; for an input of the network the first to read it."""
        if quantizer.kind == "activation" and quantizer.tensor in self._producers:
            return self._producers[quantizer.tensor]
        readers: Mapping[str, Any] = self._nodes
        return next((readers[each.node] for each in quantizer.consumers), None)


# What is known of a quantized network before anything is changed in it.

# Samples that were not looked at may reach so many times as far.
_UNSEEN = 2.0
# Others, of which nothing is known, reach as far as is extrapolated from these, or somewhat further: ranges of
# 1,000 samples end 0.9 times as far in the middle as is extrapolated from 32 of the same kind, 1.4 times in one of
# 20; and 2.4 times as far as these 32 in one of 100.
_RARER, _RAREST = 1.4, 2.4
# That was seen by 32 samples. Fewer show less: by 8 of them all these are twice as much, by 16 half as much again.
_SHOWN_BY = 32


class QuantizationFacts:
    """A quantized network and what its tensors hold.

    Args:
        quantized: The network.
        everything: All its tensors, with their shapes.
        observed: What each activation that is quantized holds.
        arithmetic: How its hardware computes.
        asked: Quantizers that were to be wider, with the bits that were asked for.
        partly: Whether some of the samples were not looked at, so that tensors may hold more.
        masks: What attention masks ask of quantizers; None where there are none.
    """

    def __init__(  # noqa: PLR0913 - what is known of a network
        self,
        quantized: QuantizedModel,
        everything: tuple[Value, ...],
        *,
        observed: Mapping[str, Observed],
        arithmetic: Arithmetic,
        asked: Mapping[str, int],
        partly: bool = False,
        masks: MaskNeeds | None = None,
    ) -> None:
        self.quantized, self.everything = quantized, everything
        self.observed, self.arithmetic, self.asked = observed, arithmetic, asked
        self._partly, self.masks = partly, masks
        self.quantizers = {each.name: each for each in quantized.quantizers}
        self.weights = Weights(quantized.float_model)
        self._damage: dict[int, tuple[Quantizer, Damage]] = {}
        self._safe: dict[str, tuple[float, float]] = {}

    def of(self, quantizers: tuple[Quantizer, ...]) -> "QuantizationFacts":
        """The same network with other quantizers; what they do to activations is not looked at again."""
        return QuantizationFacts(
            replace(self.quantized, quantizers=quantizers),
            self.everything,
            observed=self.observed,
            arithmetic=self.arithmetic,
            asked=self.asked,
            partly=self._partly,
            masks=self.masks,
        )

    @cached_property
    def suspects(self) -> tuple[Suspect, ...]:
        """Who can be to blame."""
        return find_suspects(self.quantized)

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """Nodes of the float model by name."""
        return {node.name: node for node in self.quantized.float_model.proto.graph.node}

    @cached_property
    def parts(self) -> TransformerParts:
        """What its nodes are for, where it is a transformer."""
        return find_parts(self.quantized.float_model)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of tensors in the first sample, constants among them."""
        found = {each.name: each.shape for each in self.everything if each.shape is not None}
        return found | {name: self.weights.shape(name) for name in self.weights}

    @cached_property
    def _bits(self) -> dict[str, Counter[int]]:
        found: dict[str, Counter[int]] = {}
        for each in self.quantized.quantizers:
            found.setdefault(each.kind, Counter())[each.spec.bits] += 1
        return found

    def prevailing_bits(self, quantizer: Quantizer) -> int:
        """The width that was asked for it, else the one that most of its kind have; its own where that is more."""
        usual = self._bits[quantizer.kind].most_common(1)[0][0]
        return max(quantizer.spec.bits, self.asked.get(quantizer.name, usual))

    def values(self, tensor: str) -> Array:
        """A constant, as float32."""
        return self.weights[tensor].astype(np.float32, copy=False)

    def channel_axis(self, quantizer: Quantizer) -> int | None:
        """The axis of a constant that has a slice for each channel of the result; None where it has one axis."""
        rank = len(self.shapes.get(quantizer.tensor, ()))
        node = self.nodes.get(quantizer.consumers[0].node) if quantizer.consumers else None
        if node is None or rank < 2:
            return None
        transposed = any(each.name == "transB" and each.i for each in node.attribute)
        return weight_axis(node.op_type, rank, transposed=transposed)

    def constant_damage(self, quantizer: Quantizer) -> Damage:
        """What a quantizer does to its constant, with the codes it has."""
        known = self._damage.get(id(quantizer))
        if known is None:
            known = quantizer, self._constant_damage(quantizer)
            self._damage[id(quantizer)] = known
        return known[1]

    def _constant_damage(self, quantizer: Quantizer) -> Damage:
        values, axis = self.values(quantizer.tensor), self.channel_axis(quantizer)
        return quantize_values(values, quantizer, axis)

    def rounded_codes(self, quantizer: Quantizer) -> Array:
        """The codes that rounding the constant gives."""
        return codes_of(self.values(quantizer.tensor), quantizer.params, quantizer.spec)

    def damage(self, suspect: Suspect) -> Damage | None:
        """What the quantizer of a suspect does to its tensor; None where that was not seen."""
        quantizer = self.quantizers[suspect.name]
        if quantizer.tensor in self.weights:
            return self.constant_damage(quantizer)
        found = [
            self.observed[each.tensor].damage[each.name]
            for each in (self.quantizers[name] for name in suspect.quantizers)
            if each.tensor in self.observed
        ]
        return max(found, key=lambda each: each.channel_loss, default=None)

    def value_range(
        self, suspect: Suspect, places: Sequence[int] | None = None, *, rarer: bool = True
    ) -> tuple[float, float]:
        """Smallest and largest value of all tensors of a suspect, zero included; in all samples or some.

        Where its range ends beyond them, and samples that are rarer may reach so far, that is where it ends. Of
        masks and masked scores: from where a probability is nothing.
        """
        masked = [] if self.masks is None else [self.masks.ranges.get(name) for name in suspect.tensors]
        if needed := [each for each in masked if each is not None]:
            return min(0.0, *(low for low, _ in needed)), max(0.0, *(high for _, high in needed))
        if suspect.tensor in self.weights:
            values = self.values(suspect.tensor)
            return float(values.min(initial=0.0)), float(values.max(initial=0.0))
        seen = [self.observed[name] for name in suspect.tensors if name in self.observed]
        ranges = [each.range if places is None else each.range_of(places) for each in seen]
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        quantizer = self.quantizers[suspect.name]
        if quantizer.params.scale.size != 1:
            return low, high
        own = (float(each) for each in representable_range(quantizer.params, quantizer.spec))
        safe = self.safe_range(suspect) if rarer else (0.0, 0.0)
        low, high = (
            not_narrower(mine, end, self._most(abs(mine), abs(far)))
            for mine, end, far in zip((low, high), own, safe, strict=True)
        )
        return low, high

    def _most(self, seen: float, rarer: float) -> float:
        """How far samples may reach that were not looked at, and others that are not known."""
        rarer = min(_RARER * rarer, _RAREST * seen) * self.unseen_by_few
        return max(rarer, _UNSEEN * seen if self._partly else 0.0)

    @cached_property
    def unseen_by_few(self) -> float:
        """How many times further others may reach than was seen of networks with more samples; 1 with enough."""
        # Copies of a sample show no more than one.
        distinct = (len(np.unique(each.ends, axis=0)) for each in self.observed.values())
        count = max(distinct, default=_SHOWN_BY)
        return max(1.0, math.sqrt(_SHOWN_BY / max(1, count)))

    def safe_range(self, suspect: Suspect) -> tuple[float, float]:
        """Where the range of an activation has to end for samples like these, rarer ones among them."""
        if suspect.name not in self._safe:
            seen = [self.observed[name] for name in suspect.tensors if name in self.observed]
            self._safe[suspect.name] = safe_range(seen, self.quantizers[suspect.name].spec.bits)
        return self._safe[suspect.name]

    def tensor_range(self, tensor: str, places: Sequence[int] | None = None) -> tuple[float, float] | None:
        """Smallest and largest value of a tensor, in all or some samples, zero included; None if not seen."""
        if tensor in self.weights:
            values = self.values(tensor)
            return float(values.min(initial=0.0)), float(values.max(initial=0.0))
        seen = self.observed.get(tensor)
        return None if seen is None else seen.range if places is None else seen.range_of(places)

    def channel_ranges(self, suspect: Suspect) -> list[tuple[int, Array, Array]]:
        """Channel axes, each with the smallest and largest value of each channel.

        A weight has two, if it is of rank 2 or more: that of what it writes first, then that of what it reads.
        """
        if suspect.tensor in self.weights:
            axis, values = self.channel_axis(self.quantizers[suspect.name]), self.values(suspect.tensor)
            if axis is None or not values.size:
                return []
            axes = [axis, 1 - axis] if axis < 2 else [axis]
            return [_slice_ranges(values, each) for each in axes]
        seen = self.observed.get(suspect.tensor)
        return [] if seen is None or seen.axis is None else [(seen.axis, seen.low, seen.high)]


def not_narrower(seen: float, end: float, most: float | None = None) -> float:
    """The end of a range: its own where samples that were not looked at may reach so far, at most twice as far."""
    most = _UNSEEN * abs(seen) if most is None else most
    return end if abs(seen) < abs(end) <= most and seen * end > 0 else seen


def _slice_ranges(values: Array, axis: int) -> tuple[int, Array, Array]:
    axes = tuple(at for at in range(values.ndim) if at != axis)
    return axis, values.min(axis=axes), values.max(axis=axes)


Fixes = Mapping[str, Quantizer | None]
"""Quantizers by name that others take the place of; None for float."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A quantized network, with some of its faults mended.

    Attributes:
        facts: What is known of it.
        runner: Runs it.
        mended: What is put right already.
    """

    facts: QuantizationFacts
    runner: InterventionRunner
    mended: Fixes = field(default_factory=dict)

    def mend(self, fixes: Fixes) -> "Case":
        """The case with more put right."""
        return replace(self, mended={**self.mended, **fixes})

    def put_back(self, fixes: Fixes) -> "Case":
        """The case with the places of some fixes as they were."""
        return replace(self, mended={name: each for name, each in self.mended.items() if name not in fixes})

    def quantizers(self, fixes: Fixes | None = None) -> list[Quantizer]:
        """The quantizers that are on, with what is mended and some more in place."""
        changed = {**self.mended, **(fixes or {})}
        found = (changed.get(each.name, each) for each in self.facts.quantized.quantizers)
        return [each for each in found if each is not None]

    def loss(self, fixes: Fixes | None = None, *, more: bool = False) -> Loss:
        """What the outputs lose then."""
        return self.runner.loss(self.quantizers(fixes), more=more)

    def in_float(self, suspect: Suspect) -> Fixes:
        """A suspect in float."""
        return dict.fromkeys(suspect.quantizers)

    def recovered(self, suspect: Suspect, fixes: Fixes) -> float:
        """Part of what a suspect in float takes away of the loss that fixes take away, 0 to 1."""
        before, best, after = self.loss(), self.loss(self.in_float(suspect)), self.loss(fixes)
        possible = before.value - best.value
        return min(1.0, max(0.0, (before.value - after.value) / possible)) if possible > 0 else 0.0

    def measures(self, fixes: Fixes) -> tuple[Measure, ...]:
        """What fixes change, on all samples that are used."""
        return loss_measures(self.loss(more=True), self.loss(fixes, more=True))


def loss_measures(before: Loss, after: Loss) -> tuple[Measure, ...]:
    """Signal to noise and cosine at the part of the outputs that is worst off, and whether classes agree."""
    name = before.parts[before.worst] if before.parts else ""
    ours, theirs = before.of_part(before.worst), after.of_part(before.worst)
    found = [
        Measure(
            message("diagnosis.measure_sqnr", name=name),
            "dB",
            ours.sqnr_db,
            theirs.sqnr_db,
            samples=before.samples,
        ),
        Measure(
            message("diagnosis.measure_cosine", name=name), "", ours.cosine, theirs.cosine, samples=before.samples
        ),
    ]
    if before.top1 is not None and after.top1 is not None:
        what = message("diagnosis.measure_top")
        found.append(Measure(what, "", before.top1, after.top1, samples=before.samples))
    return tuple(found)


def open_case(  # noqa: PLR0913 - what to look at, what is known of it, and how much it may take
    quantized: QuantizedModel,
    samples: Samples,
    *,
    arithmetic: Arithmetic = WIDEST,
    asked: Mapping[str, int] | None = None,
    threads: int | None = None,
    max_memory: int | None = None,
    progress: Progress = SILENT,
    deadline: Deadline = NO_DEADLINE,
    most: int = MORE_SAMPLES,
    ranges_only: bool = False,
    places: Sequence[int] | None = None,
) -> Case:
    """Run the float network and look at its tensors.

    Args:
        quantized: The network.
        samples: What it is fed.
        arithmetic: How its hardware computes.
        asked: Quantizers that were to be wider, with the bits that were asked for.
        threads: Threads to use.
        max_memory: Bytes the process may take.
        progress: Told how far it is.
        deadline: When all has to be done.
        most: Use so many samples at most.
        ranges_only: Of tensors look only at their values, and do not ask which samples lose most.
        places: Look at tensors in these of the samples; in all by default.

    Raises:
        BadInput: The samples do not fit, or no output can be compared.
        ModelFailed: The model cannot be run.
    """
    model = quantized.float_model
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    everything = complete_values(model, inferred, feed, threads=threads)
    runner = InterventionRunner(
        model,
        samples,
        everything=everything,
        threads=threads,
        max_memory=max_memory,
        progress=progress,
        deadline=deadline,
        most=most,
    )
    if not ranges_only:
        runner.focus(quantized.quantizers)
    constant = derived_constants(model.proto.graph)
    known = {each.name for each in everything}
    live = [each for each in quantized.quantizers if each.tensor not in constant and each.tensor in known]
    seen = range(len(runner.indices)) if places is None else places
    observed = observe(
        model,
        Subset(samples, tuple(runner.indices[place] for place in seen)),
        live,
        axes=channel_axes(model, everything),
        threads=threads,
        max_memory=max_memory,
        progress=progress,
        ranges_only=ranges_only,
    )
    partly = len(runner.indices) < len(samples.names)
    facts = QuantizationFacts(
        quantized,
        everything,
        observed=observed,
        arithmetic=arithmetic,
        asked=asked or {},
        partly=partly,
        masks=mask_needs(model, runner.chosen, {each.tensor for each in quantized.quantizers}),
    )
    return Case(facts, runner)
