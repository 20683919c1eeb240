"""Channels and slices of very different ranges that share one scale; the float function stays what it was."""

from dataclasses import replace

import numpy as np

from benchmarks.planted.case import PlantedCase, truth
from benchmarks.planted.families import detector
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject, with_weights
from roundoff.core.tensors import Array
from roundoff.graph.load import Model

_STRENGTHS = (24.0, 60.0, 150.0)
# Where the Clip of a ReLU6 begins to cut.
_CLIPPED = 6.0


def rescaled_pairs(subject: Subject) -> list[tuple[str, str]]:
    """Layers whose output goes through nothing but Relu into one other layer: channels can be rescaled there."""
    found = []
    for name in subject.layers:
        tensor = subject.nodes[name].output[0]
        readers = subject.readers(tensor)
        while len(readers) == 1 and subject.nodes[readers[0]].op_type in ("Relu", "MaxPool", "Clip"):
            tensor = subject.nodes[readers[0]].output[0]
            readers = subject.readers(tensor)
        first = subject.nodes[name]
        if len(readers) == 1 and readers[0] in subject.layers and first.op_type != "MatMul":
            second = subject.nodes[readers[0]]
            if first.op_type == second.op_type and subject.values[tensor].max() < _CLIPPED:
                found.append((name, readers[0]))
    return found


def _rescaled(subject: Subject, pair: tuple[str, str], channel: int, factor: float) -> Model:
    """One channel left as it is and all others made smaller: a Clip between the layers then changes nothing."""
    first, second = (subject.nodes[name] for name in pair)
    weight, bias, after = (np.array(subject.weights[n]) for n in (*first.input[1:3], second.input[1]))
    others = np.arange(len(bias)) != channel
    weight[others] /= factor
    bias[others] /= factor
    grouped = any(each.name == "group" and each.i > 1 for each in second.attribute)
    after[others if grouped else (slice(None), others)] *= factor
    return with_weights(subject.model, {first.input[1]: weight, first.input[2]: bias, second.input[1]: after})


def _outlier(subject: Subject, rng: np.random.Generator, name: str, target: str) -> PlantedCase | None:
    pairs = rescaled_pairs(subject)
    healthy_db = subject.loss_db(subject.quantization(target))
    for index in rng.permutation(len(pairs)):
        first = subject.nodes[pairs[index][0]]
        channel = int(rng.integers(subject.weights[first.input[1]].shape[0]))
        for factor in _STRENGTHS:
            model = _rescaled(subject, pairs[index], channel, factor)
            planted = Subject(subject.family, subject.seed, replace(subject.built, model=model))
            quantized = planted.quantization(target)
            if planted.loss_db(quantized) <= min(healthy_db - 8, 17):
                nodes = planted.unit(planted.nodes[pairs[index][1]].input[0], quantized)
                nodes |= {first.name, first.input[1], *planted.unit(first.output[0], quantized)}
                known = truth(nodes, "outlier-channel")
                return planted.case(name, known, target=target)
    return None


@fault("outlier-weight-channel")
def outlier_weight_channel(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One channel of a layer is far larger than the others, on a chip with one scale per weight."""
    return _outlier(subject, rng, "outlier-weight-channel", "generic-int8-per-tensor")


@fault("outlier-activation-channel")
def outlier_activation_channel(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One channel of an activation is far larger than the others; weights have a scale per channel.

    In a transformer it is where they are in real ones: in the gain of a normalization.
    """
    if subject.family == "transformer":
        return _outlier_gain(subject, rng)
    return _outlier(subject, rng, "outlier-activation-channel", subject.target)


def _outlier_gain(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    norms = [n for n in subject.nodes.values() if n.op_type == "LayerNormalization" and "layer" in n.name]
    for index in rng.permutation(len(norms)):
        norm = norms[index]
        readers = [subject.nodes[name] for name in subject.readers(norm.output[0])]
        for factor in (60.0, 200.0, 600.0):
            channel = int(rng.integers(subject.weights[norm.input[1]].shape[0]))
            changes: dict[str, Array] = {}
            for part in norm.input[1:3]:
                changes[part] = np.array(subject.weights[part])
                changes[part][channel] *= factor
            for reader in readers:
                changes[reader.input[1]] = np.array(subject.weights[reader.input[1]])
                changes[reader.input[1]][channel] /= factor
            model = with_weights(subject.model, changes)
            planted = Subject(subject.family, subject.seed, replace(subject.built, model=model))
            quantized = planted.healthy
            if planted.loss_db(quantized) <= min(subject.healthy_db - 8, 17):
                known = truth((norm.name, norm.output[0]), "outlier-channel")
                return planted.case("outlier-activation-channel", known, target=planted.target)
    return None


@fault("mixed-range-concat")
def mixed_range_concat(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Boxes in pixels and scores from 0 to 1 in one tensor; or branches of very different range, joined."""
    if subject.family == "detector":
        chance = np.random.default_rng([subject.seed, 3])
        built = detector.build(chance, box_unit=detector.PIXELS)
        planted = Subject(subject.family, subject.seed, built)
        concat = planted.nodes["head/concat"]
        nodes = (concat.name, concat.output[0], "head/flatten", "head/flatten_out")
        return planted.case("mixed-range-concat", truth(nodes, "mixed-range"), target=planted.target)
    return _mixed_branches(subject, rng)


def _mixed_branches(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Scale one branch of a Concat up and what reads it down: the float function stays."""
    for node in subject.nodes.values():
        readers = subject.readers(node.output[0])
        if node.op_type != "Concat" or len(readers) != 1 or readers[0] not in subject.layers:
            continue
        widths = [subject.values[name].shape[1] for name in node.input]
        side = int(rng.integers(len(widths)))
        start = sum(widths[:side])
        layer, reader = _layer_before(subject, node.input[side]), subject.nodes[readers[0]]
        if layer is None:
            continue
        for factor in (100.0, 400.0, 1600.0):
            first = subject.nodes[layer]
            changes = {name: subject.weights[name] * np.float32(factor) for name in first.input[1:3]}
            after = np.array(subject.weights[reader.input[1]])
            after[:, start : start + widths[side]] /= factor
            model = with_weights(subject.model, {**changes, reader.input[1]: after})
            planted = Subject(subject.family, subject.seed, replace(subject.built, model=model))
            if planted.loss_db(planted.healthy) <= min(subject.healthy_db - 8, 17):
                known = truth((node.name, node.output[0]), "mixed-range")
                return planted.case("mixed-range-concat", known, target=planted.target)
    return None


def _layer_before(subject: Subject, tensor: str) -> str | None:
    """The layer that a tensor comes from through nodes that scale with their input."""
    node = subject.producer.get(tensor)
    while node is not None and node not in subject.layers:
        if subject.nodes[node].op_type not in ("Relu", "MaxPool", "GlobalAveragePool", "Flatten"):
            return None
        tensor = subject.nodes[node].input[0]
        node = subject.producer.get(tensor)
    alone = node is None or len(subject.readers(tensor)) == 1
    return node if alone else None


@fault("mixed-range-add")
def mixed_range_add(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A sum whose one side is far larger and then taken away again, so that the other side drowns in its scale."""
    sums = [
        n for n in subject.nodes.values() if n.op_type == "Add" and not any(x in subject.weights for x in n.input)
    ]
    if not sums:
        return None
    node = sums[int(rng.integers(len(sums)))]
    for size in (60.0, 240.0, 900.0):
        planted = _with_hill(subject, node, size)
        if planted.loss_db(planted.healthy) <= min(subject.healthy_db - 8, 17):
            nodes = {node.name, node.output[0], f"{node.name}/restore", f"{node.name}/hill"}
            nodes |= {f"{node.name}/hill_out"}
            known = truth(frozenset(nodes), "mixed-range")
            return planted.case("mixed-range-add", known, target=planted.target)
    return None


def _with_hill(subject: Subject, node: object, size: float) -> Subject:
    """Add a hill (the mean of the input, blown up) to one side of a sum, and take it away behind it."""
    from onnx import helper, numpy_helper

    from roundoff.graph.load import model_from_proto

    proto = type(subject.model.proto)()
    proto.CopyFrom(subject.model.proto)
    graph = proto.graph
    at = next(index for index, each in enumerate(graph.node) if each.name == node.name)  # type: ignore[attr-defined]
    total, name = graph.node[at].output[0], graph.node[at].name
    shape = subject.values[graph.node[at].input[0]].shape[1:]
    chance = subject.rng("hill", name)
    hill = (size * chance.uniform(0.5, 1.0, (1, *shape))).astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(hill, f"{name}_hill"))
    graph.initializer.append(numpy_helper.from_array(-hill, f"{name}_valley"))
    raised, summed = f"{name}/hill_out", f"{name}/sum_out"
    first = helper.make_node("Add", [graph.node[at].input[0], f"{name}_hill"], [raised], name=f"{name}/hill")
    graph.node[at].input[0], graph.node[at].output[0] = raised, summed
    last = helper.make_node("Add", [summed, f"{name}_valley"], [total], name=f"{name}/restore")
    graph.node.insert(at, first)
    graph.node.insert(at + 2, last)
    model = model_from_proto(proto, path=subject.model.path)
    return Subject(subject.family, subject.seed, replace(subject.built, model=model))
