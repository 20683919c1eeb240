"""What is wrong in the file of a quantized model itself: one of its nodes, with its own quantize nodes."""

from collections.abc import Iterator, Mapping
from typing import Any

from roundoff.case.minimal import NotLocal
from roundoff.case.parts import GoldenFeeds, fixed_shapes, placed, run_part
from roundoff.case.reproducer import BEST_DB, Reproducer, ReproducerSample, Spot, largest_gap, sqnr_at
from roundoff.diagnosis.causes.file_overflow import accumulators
from roundoff.diagnosis.file_check import check_file
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.subject import Case
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.shapes import values
from roundoff.graph.subgraph import Part, Parts
from roundoff.run.integer.runner import IntegerRunner

__all__ = [
    "is_accumulator",
    "is_of_file",
    "reproduce_accumulator",
    "reproduce_file",
]


_MOST_SAMPLES = 4
_SMALLEST_DB = 3.0
# Nodes that only bring values to codes and back, or move them on.
_AROUND = frozenset({"QuantizeLinear", "DequantizeLinear", "Cast", "Identity"})


def is_of_file(case: Case, given: Model, finding: Finding) -> bool:
    """Whether a finding is about what the file computes beyond what its quantizers say."""
    found = check_file(case, given)[1]
    return found is not None and (found.cause, found.nodes) == (finding.cause, finding.nodes)


def reproduce_file(case: Case, given: Model, finding: Finding, *, most_samples: int = _MOST_SAMPLES) -> Reproducer:
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
    parts = Parts(case.runner.model, case.facts.everything)
    shapes = {name: array.shape for name, array in case.runner.feeds()[0][1].items()}
    theirs = Parts(given, values(given, shapes))
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
            samples=tuple(
                ReproducerSample(*each) for each in zip(golden.names, feeds, exact, observed, strict=True)
            ),
            stored=False,
            spot=gap.spot,
            faulty_db=gap.faulty_db,
            mended_db=gap.mended_db,
            threshold_db=(gap.faulty_db + min(gap.mended_db, BEST_DB)) / 2,
            mending="as its quantizers say",
            complement=next(iter(finding.measures), None),
            alone=None,
            passes=bool(finding.measures) and finding.measures[0].improved,
            observer="what quantized.onnx gives: the nodes as they are in the file",
            right="with this put right in the file",
        )
    raise NotLocal(
        f"No single node of the file shows finding {finding.number} ({finding.cause}) by itself: nodes of the "
        "float model are fused there, or have other names.",
        fix="send the whole case with roundoff bundle",
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


def _cut_from_file(given: Model, theirs: Parts, node: Any) -> tuple[Model, tuple[str, ...]] | None:
    """The node as it is in the file, with the quantize nodes before it, and what it reads, by its float names."""
    graph = given.proto.graph
    makers = {name: each for each in graph.node for name in each.output}
    twin = next(each for each in graph.node if each.name == node.name)
    chain, names = [twin.name], dict(zip(twin.output, node.output, strict=False))
    for ours, name in zip(node.input, twin.input, strict=False):
        while name in makers and makers[name].op_type in _AROUND and name not in theirs.constant:
            chain.append(makers[name].name)
            name = makers[name].input[0]  # noqa: PLW2901 - the way back to where values are in float
        if name and name not in theirs.constant:
            names[name] = ours
    found = theirs.part(chain)
    part = Part(found.nodes, found.reads, tuple(twin.output))
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


def reproduce_accumulator(case: Case, finding: Finding, *, most_samples: int = _MOST_SAMPLES) -> Reproducer:
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
    parts = Parts(model, case.facts.everything)
    for name in finding.nodes:
        part = parts.part([name])
        tensor = case.facts.nodes[name].output[0]
        feeds = golden.of(part.reads)
        expected, observed = ([run.run_local(feed, [tensor]).values for feed in feeds] for run in runners)
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
            samples=tuple(
                ReproducerSample(sample, feed, {tensor: right[tensor]}, {tensor: wrong[tensor]})
                for sample, feed, right, wrong in zip(golden.names, feeds, expected, observed, strict=True)
            ),
            stored=True,
            spot=spot,
            faulty_db=faulty,
            mended_db=mended,
            threshold_db=(faulty + mended) / 2,
            mending="with sums of 64 bits",
            complement=next(iter(finding.measures), None),
            alone=None,
            passes=bool(finding.measures) and finding.measures[0].improved,
            fed="what the float network computes",
            observer=f"the same in exact integers, with {bits}",
            right="in integers with sums of 64 bits",
        )
    raise NotLocal(
        f"No node of finding {finding.number} (overflow) shows it by itself, fed with what the float network "
        "computes.",
        fix="send the whole case with roundoff bundle",
    )
