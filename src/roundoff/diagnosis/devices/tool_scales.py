"""What a tool's own scales make of a network: what its dumps are expected to be."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.plan import Step
from roundoff.core.quantizers import (
    Consumer,
    Quantizer,
    QuantParams,
    QuantSpec,
    parameters_from_range,
    representable_range,
)
from roundoff.core.target import Target
from roundoff.core.tensors import TensorSource
from roundoff.diagnosis.devices.readout import KnownNames, Readout, read_out
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import consumers
from roundoff.graph.preparation import prepare
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.quantize.planning.quantizers import weight_axis
from roundoff.quantize.planning.view import GraphView
from roundoff.quantize.steps import StepContext, apply_transform
from roundoff.quantize.targets.files import load_target
from roundoff.run.capture import LiveSource, Samples
from roundoff.tensors.ranges import on_grid
from roundoff.tensors.stored import ToolScale, scales_of, target_of

_LAYERS = {"Conv": (1,), "ConvTranspose": (1,), "Gemm": (1,), "MatMul": (0, 1)}
_SUMS = frozenset({"Add", "Sub"})
_FUSED = 2
"""An activation and a sum are computed in one with what is in front of them."""
_FEWEST = 0.25
"""Of what was dumped at least so much has codes by the tool's scales, or they are of another run: the float run of
the same tool has none, and where every activation is fused every second tensor is not rounded."""


def expected_by_scales(
    model: Model, samples: Samples, dumps: TensorSource, *, names: KnownNames | None = None
) -> QuantizedModel | None:
    """The network as the tool's files say that it is coded; None where they do not say it of this run.

    Args:
        model: The float model.
        samples: What the device was to be fed.
        dumps: What it wrote, with the scales of its tensors.
        names: Names of the device's tensors by those of the float model, where they are known.

    Raises:
        CannotAlign: Nothing of the dumps belongs to the model.
    """
    if not target_of(dumps) or not scales_of(dumps):
        return None
    target = load_target(target_of(dumps))
    # Scales are of what the tool computes, and every tool takes normalization into the layers.
    context, there = StepContext(target, samples), {info.name for info in dumps.tensors}
    # What it splits, it splits before.
    split = _rewritten(model, target.possible_rewrites, context, there)
    folded = _rewritten(prepare(split).model, target.rewrites, context, there)
    fed = {each.name for each in inputs(folded)}
    with closing(LiveSource(folded, samples)) as reference:
        readout = read_out(
            reference,
            dumps,
            tensors=[info.name for info in reference.tensors if not info.problem],
            quantizers={},
            ends=(*fed, *outputs(folded)),
            names=names,
        )
        coded = dict(_coded(readout, folded, fed))
    floats = [name for name in readout.pairs if name not in fed]
    if len(coded.keys() - fed) < _FEWEST * len(floats):
        return None
    activations = [
        _rounded_as(each, coded[each.tensor].scale.scale, target) for each in _activations(folded, coded)
    ]
    quantizers = (
        *_with_copies(activations, folded, target),
        *_weights(folded, target, coded),
        *_addends(folded, target, coded),
    )
    return QuantizedModel(folded, (*quantizers, *_biases(folded, target, quantizers)))


def _rewritten(model: Model, steps: Sequence[str], context: StepContext, there: Collection[str]) -> Model:
    """The network as the tool computes it: with what it wrote changed, and nothing else."""
    for name in steps:
        done = apply_transform(Step(name), model, context)
        nodes = [each.node for each in done.taken]
        if len(nodes) > 1 and not _shows(done.model, model, there):
            for node in nodes:
                alone = apply_transform(Step(name, nodes=(node,)), model, context)
                model = alone.model if _shows(alone.model, model, there) else model
        elif _shows(done.model, model, there):
            model = done.model
    return model


def _shows(changed: Model, model: Model, there: Collection[str]) -> bool:
    """Whether dumps hold all tensors that a changed network has more, and none that it has no more."""
    before, after = ({out for node in each.proto.graph.node for out in node.output} for each in (model, changed))
    return (after - before).issubset(there) and not (before - after).intersection(there)


def activation_quantizers(readout: Readout, model: Model) -> list[Quantizer]:
    """The quantizers of activations that the tool's files tell of."""
    fed = [each.name for each in inputs(model)]
    return _activations(model, dict(_coded(readout, model, fed)))


def _activations(model: Model, coded: "Mapping[str, _Coded]") -> list[Quantizer]:
    leaving = set(outputs(model))
    found = []
    for name, each in coded.items():
        own = f"tool:{name}"
        found.append(
            Quantizer(own, name, "activation", *codes_of(each.scale), each.readers, output=name in leaving)
        )
        found += [
            Quantizer(f"{own}@{readers[0].node}", name, "activation", *codes_of(scale), readers, after=own)
            for scale, readers in each.again
        ]
    return found


@dataclass(frozen=True, slots=True)
class _Coded:
    """How a tensor is coded, and who reads the codes; and how they are coded again, for whom."""

    scale: ToolScale
    readers: tuple[Consumer, ...]
    again: tuple[tuple[ToolScale, tuple[Consumer, ...]], ...] = ()


def _coded(readout: Readout, model: Model, fed: Collection[str]) -> Iterator[tuple[str, _Coded]]:
    """Tensors that were dumped as the tool says that it codes them, or are cast to such before they are read.

    What lies in front of a fused activation, or is added before it is rounded, has a scale in the tool's files and
    is not on it.
    """
    scales = scales_of(readout.device)
    casts = {info.name: info.copy_of for info in readout.device.tensors if info.copy_of} | dict(readout.copies)
    readers = consumers(model.proto.graph.node)
    ahead = _ahead(model)
    for name, pair in readout.pairs.items():
        if name in readout.fits:
            continue
        own = scales.get(pair.candidate)
        places = range(len(readout.samples))
        # What is fed is written as it was given, and coded all the same.
        if own is not None and (name in fed or all(on_grid(readout.read(name, at), own.scale) for at in places)):
            joined = [each for each, original in casts.items() if original == pair.candidate and each in scales]
            again = [(scales[each], _joining(each, readers[name], ahead)) for each in joined]
            taken = {reader for _, some in again for reader in some}
            rest = tuple(reader for reader in readers[name] if reader not in taken)
            yield name, _Coded(own, rest, tuple(each for each in again if each[1]))
            continue
        copies = [each for each, original in casts.items() if original == pair.candidate]
        if own is None and (cast := next((each for each in copies if each in scales), None)) is not None:
            others = [each for each in copies if each not in scales]
            reading = [(each, ahead(each.node)) for each in readers[name]]
            yield name, _Coded(scales[cast], _readers_of(cast, others, reading, pair.candidate))


def _joining(
    copy: str, readers: Sequence[Consumer], ahead: Callable[[str], Collection[str]]
) -> tuple[Consumer, ...]:
    """Who reads a tensor in codes of another scale, which are called after that: ``name_to_joined_Concat``."""
    _, between, joined = copy.rpartition("_to_")
    named = (reader for reader in readers if any(joined.startswith(name) for name in ahead(reader.node)))
    return tuple(named) if between else ()


def _readers_of(
    cast: str, others: Sequence[str], readers: Sequence[tuple[Consumer, Collection[str]]], tensor: str
) -> tuple[Consumer, ...]:
    """Who reads a cast, which is named after that; where it names none of them, all that no other cast names."""

    def named(cast: str, ahead: Collection[str]) -> bool:
        rest = cast.removeprefix(tensor)
        return any(rest.startswith(name) for name in ahead)

    own = tuple(reader for reader, ahead in readers if named(cast, ahead))
    return own or tuple(reader for reader, ahead in readers if not any(named(each, ahead) for each in others))


def _ahead(model: Model) -> Callable[[str], frozenset[str]]:
    """Of a node, what a kernel with it may be named after: its results and those of a few behind it."""
    nodes = {node.name: node for node in model.proto.graph.node}
    readers = consumers(model.proto.graph.node)

    def ahead(node: str) -> frozenset[str]:
        names, last = set(nodes[node].output), set(nodes[node].output)
        for _ in range(_FUSED):
            last = {out for name in last for each in readers[name] for out in nodes[each.node].output}
            names |= last
        return frozenset(names)

    return ahead


def codes_of(scale: ToolScale) -> tuple[QuantSpec, QuantParams]:
    """The codes of a range, counted from zero on."""
    steps = round((scale.high - scale.low) / scale.scale)
    spec = QuantSpec(bits=max(2, steps.bit_length()), signed=False, symmetric=False)
    zero = np.clip(np.rint(-scale.low / scale.scale), 0, spec.code_max)
    return spec, QuantParams(np.asarray(scale.scale, np.float32), np.asarray(zero, np.int64))


def _rounded_as(quantizer: Quantizer, scale: float, target: Target) -> Quantizer:
    """A quantizer that rounds what has no codes yet, such as inputs, as the target does."""
    rounding = target.activations[target.activation].rounding
    params = quantizer.params
    if rounding == "half_away" and float(params.scale) > scale:
        # The tool's scale has more digits than float32: one that is rounded up takes halves for less than that.
        params = replace(params, scale=np.nextafter(params.scale, np.float32(0)))
    return replace(quantizer, params=params, spec=replace(quantizer.spec, rounding=rounding))


def _addends(model: Model, target: Target, coded: Collection[str]) -> Iterator[Quantizer]:
    """Constants that are added to codes, where the tool brings each operand of a sum to codes of its own."""
    if not target.arithmetic.narrow.intersection(_SUMS):
        return
    view, spec = GraphView(model), target.activations[target.activation]
    for node in view.nodes:
        held = (place for place, name in enumerate(node.inputs) if view.is_constant(name) and view.is_float(name))
        places = list(held) if node.operation in _SUMS else []
        if len(places) != 1 or node.inputs[1 - places[0]] not in coded:
            continue
        name = node.inputs[places[0]]
        values = view.weights[name]
        # Constants have codes with a sign also where nothing is negative.
        own = replace(spec, symmetric_scale="max_code")
        params = parameters_from_range(float(values.min()), float(values.max()), own)
        yield Quantizer(f"tool:{node.name}:{name}", name, "weight", own, params, (Consumer(node.name, places[0]),))


def _with_copies(quantizers: Sequence[Quantizer], model: Model, target: Target) -> Iterator[Quantizer]:
    """Quantizers, and those of operands that the tool rounds again in another way."""
    spec, weights = target.live_operand, Weights(model)
    nodes = {node.name: node for node in model.proto.graph.node}

    def again(reader: Consumer) -> bool:
        node = nodes[reader.node]
        live = node.op_type == "MatMul" and not any(name in weights for name in node.input[:2])
        return live and reader.input in target.live_places

    for each in quantizers:
        copied = tuple(filter(again, each.consumers)) if spec is not None and target.live_copies else ()
        yield replace(each, consumers=tuple(reader for reader in each.consumers if reader not in copied))
        if copied and spec is not None:
            params = parameters_from_range(*representable_range(each.params, each.spec), spec)
            yield Quantizer(
                f"{each.name}@{copied[0].node}", each.tensor, "activation", spec, params, copied, after=each.name
            )


def _weights(model: Model, target: Target, coded: Collection[str]) -> Iterator[Quantizer]:
    """Weights of layers that compute with codes, in the way of the tool."""
    view = GraphView(model)
    coded, spec = set(coded), target.weights[target.weight]
    for node in view.nodes:
        if node.operation in target.pass_through and node.inputs[0] in coded:
            coded.update(node.outputs)
        for place in _LAYERS.get(node.operation, ()):
            name = node.inputs[place] if place < len(node.inputs) else ""
            # A layer that reads what has no codes stays in float.
            if not view.is_constant(name) or not view.is_float(name) or node.inputs[1 - place] not in coded:
                continue
            values = view.weights[name]
            axis, _ = weight_axis(node, place, view, target)
            others = tuple(each for each in range(values.ndim) if each != axis)
            low, high = (np.asarray(end(values, axis=others)) for end in (np.min, np.max))
            own = spec.along(axis)
            reader = Consumer(node.name, place)
            params = parameters_from_range(low, high, own)
            yield Quantizer(f"tool:{node.name}:{name}", name, "weight", own, params, (reader,))


def _biases(model: Model, target: Target, quantizers: Sequence[Quantizer]) -> Iterator[Quantizer]:
    """Biases of layers: whole numbers of the product of both scales."""
    weights = Weights(model)
    read_by = {reader: each for each in quantizers for reader in each.consumers}
    behind = consumers(model.proto.graph.node)
    nodes = {node.name: node for node in model.proto.graph.node}
    own = {each.tensor: each for each in quantizers if each.kind == "activation" and not each.after}
    moving = (node for node in nodes.values() if node.op_type in target.pass_through)
    moved = {name: node.input[0] for node in moving for name in node.output}
    for node in nodes.values():
        source, weight = (read_by.get(Consumer(node.name, place)) for place in (0, 1))
        # What was only moved, and is written nowhere, has the codes of what it was moved from.
        name = node.input[0] if node.input else ""
        while source is None and name in moved:
            name = moved[name]
            source = own.get(name)
        if node.op_type not in _LAYERS or source is None or weight is None or weight.kind != "weight":
            continue
        reader = Consumer(node.name, 2)
        # A product without a bias has it in an Add behind it.
        after = behind[node.output[0]] if node.op_type == "MatMul" else ()
        if len(after) == 1 and nodes[after[0].node].op_type == "Add" and after[0] not in read_by:
            reader = Consumer(after[0].node, 1 - after[0].input)
        name = nodes[reader.node].input[reader.input] if reader.input < len(nodes[reader.node].input) else ""
        if name not in weights or reader in read_by:
            continue
        scale = np.asarray(source.params.scale * weight.params.scale, np.float32)
        if scale.ndim and weights[name].shape != scale.shape:
            continue
        spec = QuantSpec(bits=32, signed=True, symmetric=True, axis=0 if scale.ndim else None)
        params = QuantParams(scale, np.zeros(scale.shape, np.int64))
        yield Quantizer(f"tool:{node.name}:{name}", name, "bias", spec, params, (reader,))
