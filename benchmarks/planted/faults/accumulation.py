"""Loss that no single node is to blame for, and bad looks that cost nothing."""

from dataclasses import replace

import numpy as np

from benchmarks.planted.case import CLEAN, PlantedCase, Truth
from benchmarks.planted.faults.ranges import scaled, with_bits
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject, replaced
from roundoff.graph.load import model_from_proto

__all__: list[str] = []


@fault("coarse-everywhere")
def coarse_everywhere(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Every activation is a little too coarse."""
    del rng
    quantized = subject.healthy
    for bits in (6, 5, 4):
        changes = {
            q.name: with_bits(q, bits) for q in quantized.quantizers if q.kind == "activation" and not q.after
        }
        planted = replaced(quantized, changes)
        if subject.costs(planted):
            known = Truth("distributed", causes=("accumulated-error", "resolution"))
            return subject.case("coarse-everywhere", known, quantized=planted)
    return None


@fault("near-zero-tensor")
def near_zero_tensor(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A branch whose values are next to nothing, rounded to zero by its wide range: ugly, and harmless."""
    from onnx import helper, numpy_helper

    layers = [name for name in subject.layers if subject.nodes[name].op_type == "Conv"]
    if not layers:
        return None
    name = layers[int(rng.integers(len(layers)))]
    proto = type(subject.model.proto)()
    proto.CopyFrom(subject.model.proto)
    graph = proto.graph
    at = next(index for index, node in enumerate(graph.node) if node.name == name)
    result = graph.node[at].output[0]
    before = f"{name}/main_out"
    graph.node[at].output[0] = before
    tiny = np.float32(1e-4)
    graph.initializer.append(numpy_helper.from_array(tiny, f"{name}_faint"))
    faint = helper.make_node("Mul", [before, f"{name}_faint"], [f"{name}/faint_out"], name=f"{name}/faint")
    joined = helper.make_node("Add", [before, f"{name}/faint_out"], [result], name=f"{name}/join")
    graph.node.insert(at + 1, faint)
    graph.node.insert(at + 2, joined)
    model = model_from_proto(proto, path=subject.model.path)
    planted = Subject(subject.family, subject.seed, replace(subject.built, model=model))
    quantized = planted.healthy
    wide = {q.name: scaled(q, 64) for q in quantized.quantizers if q.tensor == f"{name}/faint_out"}
    changed = replaced(quantized, wide)
    if not wide or planted.loss_db(changed) < planted.loss_db(quantized) - 0.5:
        return None
    return planted.case("near-zero-tensor", CLEAN, quantized=changed)
