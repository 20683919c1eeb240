"""Cutting: the smallest part of a network that shows a fault by itself, what it should give and what it gives.

Of a quantized network the part is found by leaving nodes out and is fed with what the float network computes; of a
file it is one of its own nodes; of a device what lies between tensors that the device wrote.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from roundoff.case.parts import (
    BEST_DB,
    BlamedQuantizers,
    Feeds,
    Gap,
    GoldenFeeds,
    Spot,
    as_good_as,
    blamed_quantizers,
    clearly_better,
    fixed_shapes,
    largest_gap,
    placed,
    run_part,
    sqnr_at,
)
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.diagnosis.causes.file_overflow import accumulators
from roundoff.diagnosis.checks import check_file
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import OutputLoss
from roundoff.diagnosis.result import Finding, Measure
from roundoff.diagnosis.subject import Case, loss_measures
from roundoff.errors import BadInput
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.nodes import producers
from roundoff.graph.shapes import Value
from roundoff.graph.shapes import values as shapes_of
from roundoff.graph.subgraph import ModelPart, ModelParts
from roundoff.messages.message import english, message
from roundoff.messages.numbers import decibels_text
from roundoff.run.integer.machine import IntegerRunner


@dataclass(frozen=True, slots=True, eq=False)
class ReproducerSample:
    """One set of inputs.

    Attributes:
        name: The sample of the run it was taken from.
        inputs: What the part reads.
        expected: What it should give.
        observed: What it gives.
    """

    name: str
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    observed: Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Reproducer:
    """The smallest part of a network that shows a fault by itself.

    Attributes:
        nodes: Names and operations of its nodes.
        float_model: The part in float.
        quantized_model: The same with its quantizers; None where none are known.
        samples: What it is fed.
        stored: Whether what was observed is a dump; otherwise the quantized model gives it again.
        spot: Where the fault shows.
        faulty_db: Signal to noise there.
        mended_db: The same without the fault.
        threshold_db: The fault is there at or below this.
        mending: What was changed so that it was gone.
        complement: Outputs of the whole network as it is, and with this part right.
        alone: SQNR of the outputs with nothing but the blamed quantizers on; None where that means nothing.
        passes: Whether the whole network is clearly better with this part right.
        fed: What it is fed, in words, where that is neither the float network's nor a device's.
        observer: What gave what was observed, likewise.
        right: How the whole network was put right, likewise.
        unnoticed: Whether the outputs are right as they are, too: the fault does not reach them.
    """

    nodes: tuple[tuple[str, str], ...]
    float_model: Model
    quantized_model: Model | None
    samples: tuple[ReproducerSample, ...]
    stored: bool
    spot: Spot
    faulty_db: float
    mended_db: float
    threshold_db: float
    mending: str
    complement: Measure | None
    alone: float | None
    passes: bool
    fed: str = ""
    observer: str = ""
    right: str = ""
    unnoticed: bool = False

    @property
    def fed_with(self) -> str:
        """What it is fed, in words."""
        if self.fed:
            return self.fed
        return english("the device's own inputs") if self.stored else english("what the float network computes")


def _samples(names: Sequence[str], feeds: Feeds, expected: Feeds, observed: Feeds) -> tuple[ReproducerSample, ...]:
    return tuple(ReproducerSample(*each) for each in zip(names, feeds, expected, observed, strict=True))


# Delta debugging over sets: from a set that shows something to one of which no member can be left out.

ItemT = TypeVar("ItemT")


def shrink(items: Sequence[ItemT], shows: Callable[[Sequence[ItemT]], bool]) -> list[ItemT]:
    """The smallest set that is found by leaving out halves, quarters, ... and at last single members.

    No member of the result can be left out alone. Their order is kept, and they need not be neighbours. A set that
    was tried is not tried again.

    Args:
        items: A set that shows it.
        shows: Whether a set does.
    """
    current = list(range(len(items)))
    known: dict[tuple[int, ...], bool] = {}

    def test(chosen: Sequence[int]) -> bool:
        key = tuple(chosen)
        if key not in known:
            known[key] = bool(key) and shows([items[index] for index in key])
        return known[key]

    pieces = 2
    while len(current) > 1:
        parts = _split(current, pieces)
        smaller = next((part for part in parts if test(part)), None)
        if smaller is not None:
            current, pieces = smaller, 2
            continue
        rest = next((left for part in parts if test(left := _without(current, part))), None)
        if rest is not None:
            current, pieces = rest, max(pieces - 1, 2)
            continue
        if pieces >= len(current):
            break
        pieces = min(2 * pieces, len(current))
    return [items[index] for index in current]


def _split(items: list[int], pieces: int) -> list[list[int]]:
    """Pieces of nearly the same size, none of them empty."""
    ends = [len(items) * number // pieces for number in range(pieces + 1)]
    return [items[start:end] for start, end in pairwise(ends) if end > start]


def _without(items: list[int], part: list[int]) -> list[int]:
    left_out = set(part)
    return [item for item in items if item not in left_out]


# A fault that makes less than this is none to be shown to others.
_SMALLEST_DB = 3.0
# A part shows the fault when it shows this much of what all that the fault touches shows.
_SHARE = 0.5
MOST_SAMPLES = 4
"""Samples that come along unless more or fewer are asked for."""


class NotLocal(BadInput):
    """No part of the network shows the fault by itself."""


def reproduce_quantized(case: Case, finding: Finding, *, most_samples: int = MOST_SAMPLES) -> Reproducer:
    """Find the smallest part of a network that shows a finding, and prove that it does.

    Args:
        case: The float network and its quantizers.
        finding: What to show.
        most_samples: Samples that come along.

    Raises:
        NotLocal: No part shows it.
        BadInput: No quantizer belongs to the finding.
        ModelFailed: The network cannot be run.
    """
    blamed = blamed_quantizers(case, finding)
    if blamed is None:
        raise BadInput(
            "Finding {number} ({cause}) blames no quantizer, so that no part can be cut out.",
            fix=english("choose another finding with --finding, or send the whole case with roundoff bundle"),
            number=finding.number,
            cause=finding.cause,
        )
    golden = GoldenFeeds(case, _places(case, blamed, most_samples))
    search = _PartSearch(case, blamed, ModelParts(case.facts.quantized.float_model, case.facts.everything), golden)
    found = search.reproducer(search.smallest(finding))
    if not (finding.proven or found.passes):
        raise NotLocal(
            _harmless(found), fix=english("choose another row with --finding, or run roundoff diagnose")
        )
    return found


def _harmless(found: Reproducer) -> str:
    told = (
        ""
        if found.complement is None
        else english("{decibels_text} as it is and ", decibels_text=decibels_text(found.complement.before))
    )
    after = (
        ""
        if found.complement is None
        else english(
            "{decibels_text} with these quantizers off", decibels_text=decibels_text(found.complement.after)
        )
    )
    return english(
        "{nodes!r} is not what makes the loss: the whole model has {told}{after}.",
        nodes=found.nodes[0][0],
        told=told,
        after=after,
    )


def _places(case: Case, blamed: BlamedQuantizers, most: int) -> tuple[int, ...]:
    """The samples on which the fault does most harm."""
    few = case.runner.few()
    if len(few) <= most:
        return few
    quantizers, mended = case.quantizers(), case.quantizers(blamed.fixes)

    def harm(place: int) -> float:
        faulty, right = (case.runner.loss(each, places=(place,)).value for each in (quantizers, mended))
        return faulty - right

    return tuple(sorted(sorted(few, key=harm, reverse=True)[:most]))


@dataclass(slots=True)
class _PartSearch:
    case: Case
    blamed: BlamedQuantizers
    parts: ModelParts
    golden: GoldenFeeds
    enough: float = _SMALLEST_DB
    _measured: dict[tuple[str, ...], Gap | None] = field(default_factory=dict)

    def smallest(self, finding: Finding) -> list[str]:
        """The nodes of the smallest part."""
        touched = self._touched()
        start = self._gap(touched) if touched else None
        nodes: Sequence[str] = touched
        if start is None or start.db < _SMALLEST_DB:
            nodes, start = self.parts.computing, self._gap(self.parts.computing)
        if start is None or start.db < _SMALLEST_DB:
            shown = (
                english("nothing can be compared")
                if start is None
                else english("at most {decibels_text}", decibels_text=decibels_text(max(0.0, start.db)))
            )
            raise NotLocal(
                "No part of the network shows finding {number} ({cause}) by itself: {shown} between "
                "its quantizers and better ones, fed with what the float network computes.",
                fix=english("it adds up over the network; send the whole case with roundoff bundle"),
                number=finding.number,
                cause=finding.cause,
                shown=shown,
            )
        self.enough = max(_SMALLEST_DB, _SHARE * start.db)
        single = next((name for name in self._in_order(finding, nodes) if self._shows([name])), None)
        return [single] if single is not None else shrink(nodes, self._shows)

    def _in_order(self, finding: Finding, nodes: Sequence[str]) -> list[str]:
        """Single nodes to try first: those that the finding blames, then those that blamed quantizers touch."""
        touched = self._touched()
        named = [name for name in finding.nodes if name in nodes]
        return list(dict.fromkeys((*named, *(name for name in touched if name in nodes))))

    def _touched(self) -> list[str]:
        """Nodes that read what blamed quantizers give, or compute what they quantize."""
        quantizers = [each for each in self.case.facts.quantized.quantizers if each.name in self.blamed.quantizers]
        readers = {edge.node for each in quantizers for edge in each.consumers}
        tensors = {each.tensor for each in quantizers}
        graph = self.case.runner.model.proto.graph
        makers = {node.name for node in graph.node if tensors & set(node.output)}
        return [name for name in self.parts.computing if name in readers | makers]

    def _shows(self, nodes: Sequence[str]) -> bool:
        gap = self._gap(nodes)
        return gap is not None and gap.db >= self.enough

    def _gap(self, nodes: Sequence[str]) -> Gap | None:
        key = tuple(nodes)
        if key not in self._measured:
            self._measured[key] = self._measure(self.parts.part(nodes))
        return self._measured[key]

    def _measure(self, part: ModelPart) -> Gap | None:
        faulty = self._placed(part, mended=False)
        mine = any(each.name in self.blamed.quantizers for each in faulty)
        if not mine or not part.writes or not self.parts.can_be_fed(part):
            return None
        feeds = self.golden.of(part.reads)
        model = self.parts.model(part)
        exact, worse, better = (
            run_part(insert_quantizers(model, each) if each else model, feeds)
            for each in ([], faulty, self._placed(part, mended=True))
        )
        return largest_gap(exact, worse, better)

    def _placed(self, part: ModelPart, *, mended: bool) -> list[Quantizer]:
        quantizers = self.case.quantizers(self.blamed.fixes if mended else None)
        return placed(quantizers, part, self.blamed.quantizers)

    def reproducer(self, nodes: Sequence[str]) -> Reproducer:
        """The part with everything that proves it."""
        part, gap = self.parts.part(nodes), self._gap(nodes)
        if gap is None:
            raise ValueError("only a part that shows the fault can be handed on")
        feeds = self.golden.of(part.reads)
        bare = self.parts.model(part)
        exact = run_part(bare, feeds)
        model = self.parts.model(part, fixed_shapes([*feeds, *exact]))
        quantized = insert_quantizers(model, self._placed(part, mended=False))
        observed = run_part(quantized, feeds)
        kinds = {node.name: node.op_type for node in self.case.runner.model.proto.graph.node}
        off = dict.fromkeys(self.blamed.quantizers)
        before, after = self.case.loss(more=True), self.case.loss(off, more=True)
        only = [each for each in self.case.facts.quantized.quantizers if each.name in self.blamed.quantizers]
        what = message("diagnosis.measure_outputs")
        measure = Measure(what, "dB", before.sqnr_db, after.sqnr_db, samples=before.samples)
        return Reproducer(
            nodes=tuple((name, kinds[name]) for name in part.nodes),
            float_model=model,
            quantized_model=quantized,
            samples=_samples(self.golden.names, feeds, exact, observed),
            stored=False,
            spot=gap.spot,
            faulty_db=gap.faulty_db,
            mended_db=gap.mended_db,
            threshold_db=(gap.faulty_db + min(gap.mended_db, BEST_DB)) / 2,
            mending=self.blamed.what,
            complement=measure,
            alone=self.case.runner.loss(only, more=True).sqnr_db,
            passes=clearly_better(before, after),
        )


# What is wrong in the file of a quantized model itself: one of its nodes, with its own quantize nodes.

# Nodes that only bring values to codes and back, or move them on.
_AROUND = frozenset({"QuantizeLinear", "DequantizeLinear", "Cast", "Identity"})


def is_of_file(case: Case, given: Model, finding: Finding) -> bool:
    """Whether a finding is about what the file computes beyond what its quantizers say."""
    found = check_file(case, given).findings
    return any((each.cause, each.nodes) == (finding.cause, finding.nodes) for each in found)


def reproduce_file(case: Case, given: Model, finding: Finding, *, most_samples: int = MOST_SAMPLES) -> Reproducer:
    """A node of the file that gives something else than its quantizers say.

    Args:
        case: The float network, and the quantizers that were read from the file.
        given: The file.
        finding: What to show.
        most_samples: Samples that come along.

    Raises:
        NotLocal: No node that the finding blames, or that reads it, shows it.
        ModelFailed: The network cannot be run.
    """
    golden = GoldenFeeds(case, case.runner.few()[:most_samples])
    parts = ModelParts(case.runner.model, case.facts.everything)
    shapes = {name: array.shape for name, array in case.runner.feeds()[0][1].items()}
    theirs = ModelParts(given, shapes_of(given, shapes))
    for name in _candidates(case, given, finding):
        part, node = parts.part([name]), case.facts.nodes[name]
        cut = _cut_from_file(given, theirs, node)
        if cut is None or set(cut[1]) != set(part.reads):
            continue
        feeds = golden.of(part.reads)
        model = parts.model(part)
        exact, observed = run_part(model, feeds), run_part(cut[0], feeds)
        right = insert_quantizers(model, placed(case.quantizers(), part))
        gap = largest_gap(exact, observed, run_part(right, feeds))
        if gap is None or gap.db < _SMALLEST_DB:
            continue
        return Reproducer(
            nodes=((name, node.op_type),),
            float_model=parts.model(part, fixed_shapes([*feeds, *exact])),
            quantized_model=cut[0],
            samples=_samples(golden.names, feeds, exact, observed),
            stored=False,
            spot=gap.spot,
            faulty_db=gap.faulty_db,
            mended_db=gap.mended_db,
            threshold_db=(gap.faulty_db + min(gap.mended_db, BEST_DB)) / 2,
            mending=english("as its quantizers say"),
            complement=next(iter(finding.measures), None),
            alone=None,
            passes=bool(finding.measures) and finding.measures[0].improved,
            observer="what quantized.onnx gives: the nodes as they are in the file",
            right=english("with this put right in the file"),
        )
    raise NotLocal(
        "No single node of the file shows finding {number} ({cause}) by itself: nodes of the "
        "float model are fused there, or have other names.",
        fix=english("send the whole case with roundoff bundle"),
        number=finding.number,
        cause=finding.cause,
    )


def _candidates(case: Case, given: Model, finding: Finding) -> Iterator[str]:
    """Nodes of both models: those that the finding blames, then those that read or compute what it blames."""
    known = {node.name: node.op_type for node in given.proto.graph.node}
    blamed = {*finding.tensors, *finding.nodes}
    blamed |= {
        name for node in finding.nodes if node in case.facts.nodes for name in case.facts.nodes[node].output
    }
    touching = [
        node.name for node in case.facts.nodes.values() if blamed & {*node.input, *node.output} and node.name
    ]
    for name in dict.fromkeys((*finding.nodes, *touching)):
        node = case.facts.nodes.get(name)
        if node is not None and known.get(name) == node.op_type:
            yield name


def _cut_from_file(given: Model, theirs: ModelParts, node: Any) -> tuple[Model, tuple[str, ...]] | None:
    """The node as it is in the file, with the quantize nodes before it, and what it reads, by its float names."""
    graph = given.proto.graph
    makers = producers(graph.node)
    twin = next(each for each in graph.node if each.name == node.name)
    chain, names = [twin.name], dict(zip(twin.output, node.output, strict=False))
    for ours, name in zip(node.input, twin.input, strict=False):
        while name in makers and makers[name].op_type in _AROUND and name not in theirs.constant:
            chain.append(makers[name].name)
            name = makers[name].input[0]  # noqa: PLW2901 - the way back to where values are in float
        if name and name not in theirs.constant:
            names[name] = ours
    found = theirs.part(chain)
    part = ModelPart(found.nodes, found.reads, tuple(twin.output))
    if not theirs.can_be_fed(part) or not set(part.reads) <= names.keys():
        return None
    return _renamed(theirs.model(part), names), tuple(names[name] for name in part.reads)


def _renamed(model: Model, names: Mapping[str, str]) -> Model:
    """A model with the float names of what it reads and writes; what is inside is told apart from them."""
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)

    def named(name: str) -> str:
        return names.get(name, f"file/{name}") if name else name

    for node in proto.graph.node:
        node.input[:] = [named(name) for name in node.input]
        node.output[:] = [named(name) for name in node.output]
    for entries in (proto.graph.input, proto.graph.output, proto.graph.initializer):
        for entry in entries:
            entry.name = named(entry.name)
    return model_from_proto(proto, path=model.path)


# Sums that do not fit their register: one node in exact integers, with that register and with a wide one.


def is_accumulator(finding: Finding) -> bool:
    """Whether a finding is about sums of products, which fake quantization does not show."""
    return finding.cause == "overflow" and "worst_ratio" in finding.evidence


def reproduce_accumulator(case: Case, finding: Finding, *, most_samples: int = MOST_SAMPLES) -> Reproducer:
    """The node whose sums overflow most, alone, fed with what the float network computes.

    Args:
        case: The network.
        finding: What to show.
        most_samples: Samples that come along.

    Raises:
        NotLocal: Alone, the sums of no node overflow so that it matters.
        BadInput: A quantizer has no integer version.
        ModelFailed: The network cannot be run.
    """
    arithmetic, wide = accumulators(case.facts.arithmetic)
    model, quantizers = case.runner.model, case.quantizers()
    runners = [IntegerRunner(model, quantizers, each) for each in (wide, arithmetic)]
    golden = GoldenFeeds(case, case.runner.few()[:most_samples])
    parts = ModelParts(model, case.facts.everything)
    for name in finding.nodes:
        part = parts.part([name])
        tensor = case.facts.nodes[name].output[0]
        feeds = golden.of(part.reads)
        expected, observed = (
            [{tensor: run.run_local(feed, [tensor]).values[tensor]} for feed in feeds] for run in runners
        )
        spot = Spot(tensor)
        cut = parts.model(part, fixed_shapes([*feeds, *expected]))
        coded = insert_quantizers(cut, placed(quantizers, part))
        rounded = run_part(coded, feeds)
        faulty, mended = sqnr_at(spot, rounded, observed), sqnr_at(spot, rounded, expected)
        if mended - faulty < _SMALLEST_DB:
            continue
        bits = f"sums of {arithmetic.accumulator_bits} bits that {arithmetic.overflow}"
        return Reproducer(
            nodes=((name, case.facts.nodes[name].op_type),),
            float_model=cut,
            quantized_model=coded,
            samples=_samples(golden.names, feeds, expected, observed),
            stored=True,
            spot=spot,
            faulty_db=faulty,
            mended_db=mended,
            threshold_db=(faulty + mended) / 2,
            mending=english("with sums of 64 bits"),
            complement=next(iter(finding.measures), None),
            alone=None,
            passes=bool(finding.measures) and finding.measures[0].improved,
            fed=english("what the float network computes"),
            observer=f"the same in exact integers, with {bits}",
            right=english("in integers with sums of 64 bits"),
        )
    raise NotLocal(
        "No node of finding {number} (overflow) shows it by itself, fed with what the float network computes.",
        fix=english("send the whole case with roundoff bundle"),
        number=finding.number,
    )


# What a device computes wrongly: the part between tensors that it wrote.

# Other tensors, whose agreement says what a right one has.
_MOST_OTHERS = 12


def reproduce_device(
    replay: DeviceReplay, finding: Finding, *, values: Sequence[Value], most_samples: int = MOST_SAMPLES
) -> Reproducer:
    """What a device computed of one tensor, next to what follows from its own inputs.

    Args:
        replay: The device's tensors and the network.
        finding: What to show.
        values: All tensors of the float network, with their types.
        most_samples: Samples that come along.

    Raises:
        BadInput: The finding is about no tensor that the device computed, or the fault is not there.
        ModelFailed: The network cannot be run.
    """
    tensor = next((name for name in finding.tensors if name in replay.spans), "")
    if not tensor:
        raise BadInput(
            "Finding {number} ({cause}) is about no tensor that the device computed by itself.",
            fix=english(
                "for what the device was fed, see roundoff check-io; else choose another finding with --finding"
            ),
            number=finding.number,
            cause=finding.cause,
        )
    chosen = replay.indices[:most_samples]
    pairs = [replay.pair(tensor, sample) for sample in chosen]
    spot = Spot(tensor)
    exact, found = (
        [{tensor: array} for array in side] for side in zip(*((p.exact, p.found) for p in pairs), strict=True)
    )
    # What is wrong everywhere is not less so because other tensors are no better.
    everywhere = len(finding.tensors) > 1
    faulty, healthy = sqnr_at(spot, exact, found), BEST_DB if everywhere else _healthy_db(replay, tensor)
    if healthy - faulty < _SMALLEST_DB:
        what = english(
            "On the device {tensor!r} follows from what it reads to {decibels_text}, as other "
            "tensors do ({decibels_text2}).",
            tensor=tensor,
            decibels_text=decibels_text(faulty),
            decibels_text2=decibels_text(healthy),
        )
        raise BadInput(what, fix=english("choose another finding with --finding"))
    span = replay.spans[tensor]
    parts = ModelParts(replay.model, values)
    part = parts.part(span.nodes)
    # The device's own inputs: what it made of them is then its own fault alone.
    feeds = [{name: view[name] for name in part.reads} for view in map(replay.view, chosen)]
    shapes = {name: array.shape for name, array in {**feeds[0], **exact[0]}.items()}
    same = all({name: array.shape for name, array in feed.items()}.items() <= shapes.items() for feed in feeds)
    model = parts.model(part, shapes if same else None)
    quantizers = placed(replay.quantizers, part)
    kinds = {node.name: node.op_type for node in replay.model.proto.graph.node}
    before, after, passes, unnoticed = None, None, True, False
    outputs = OutputLoss(replay)
    if outputs.can_tell:
        before, after = outputs.of_device(), outputs.with_right(tensor)
        better = clearly_better(before, after)
        # With nothing wrong at the outputs, nothing can get better.
        passes = better or as_good_as(after, outputs.of_arithmetic())
        unnoticed = passes and not better
    return Reproducer(
        nodes=tuple((name, kinds[name]) for name in part.nodes),
        float_model=model,
        quantized_model=insert_quantizers(model, quantizers) if quantizers else None,
        samples=_samples([replay.readout.samples[sample][0] for sample in chosen], feeds, exact, found),
        stored=True,
        spot=spot,
        faulty_db=faulty,
        mended_db=healthy,
        threshold_db=(faulty + healthy) / 2,
        mending=english("where results are rounded") if everywhere else english("in its other tensors"),
        complement=None if before is None or after is None else loss_measures(before, after)[0],
        alone=None,
        passes=passes,
        unnoticed=unnoticed,
    )


def _healthy_db(replay: DeviceReplay, tensor: str) -> float:
    """How well the device's other tensors follow from what they read."""
    others = [name for name in replay.tensors if name != tensor]
    every = max(1, len(others) // _MOST_OTHERS)
    found = []
    for name in others[::every][:_MOST_OTHERS]:
        pair = replay.pair(name, replay.indices[0])
        found.append(sqnr_at(Spot(name), [{name: pair.exact}], [{name: pair.found}]))
    return median(found) if found else BEST_DB
