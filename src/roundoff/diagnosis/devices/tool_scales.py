"""What a tool's own scales make of a network: what its dumps are expected to be."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec, parameters_from_range
from roundoff.core.tensors import TensorSource
from roundoff.diagnosis.devices.readout import KnownNames, Readout, read_out
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import attribute, consumers
from roundoff.graph.preparation import prepare
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import weight_axis
from roundoff.graph.weights import Weights
from roundoff.run.capture import LiveSource, Samples
from roundoff.tensors.ranges import on_grid
from roundoff.tensors.stored import ToolScale, ToolWeights, scales_of, weights_of

_LAYERS = {"Conv": (1,), "ConvTranspose": (1,), "Gemm": (1,), "MatMul": (0, 1)}
_MOVING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Split"})
"""What leaves codes as they are."""
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
    weights = weights_of(dumps)
    if weights is None or not scales_of(dumps):
        return None
    # Scales are of what the tool computes, and every tool takes normalization into the layers.
    folded = prepare(model).model
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
    return QuantizedModel(folded, (*_activations(folded, coded), *_weights(folded, weights, coded)))


def activation_quantizers(readout: Readout, model: Model) -> list[Quantizer]:
    """The quantizers of activations that the tool's files tell of."""
    fed = [each.name for each in inputs(model)]
    return _activations(model, dict(_coded(readout, model, fed)))


def _activations(model: Model, coded: "Mapping[str, _Coded]") -> list[Quantizer]:
    leaving = set(outputs(model))
    return [
        Quantizer(f"tool:{name}", name, "activation", *codes_of(each.scale), each.readers, output=name in leaving)
        for name, each in coded.items()
    ]


@dataclass(frozen=True, slots=True)
class _Coded:
    """How a tensor is coded, and who reads the codes."""

    scale: ToolScale
    readers: tuple[Consumer, ...]


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
            yield name, _Coded(own, tuple(readers[name]))
            continue
        copies = [each for each, original in casts.items() if original == pair.candidate]
        if own is None and (cast := next((each for each in copies if each in scales), None)) is not None:
            others = [each for each in copies if each not in scales]
            reading = [(each, ahead(each.node)) for each in readers[name]]
            yield name, _Coded(scales[cast], _readers_of(cast, others, reading, pair.candidate))


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


def _weights(model: Model, rules: ToolWeights, coded: Collection[str]) -> Iterator[Quantizer]:
    """Weights of layers that compute with codes, in the way of the tool."""
    weights = Weights(model)
    coded = set(coded)
    for node in model.proto.graph.node:
        if node.op_type in _MOVING and node.input[0] in coded:
            coded.update(node.output)
        for place in _LAYERS.get(node.op_type, ()):
            name = node.input[place] if place < len(node.input) else ""
            # A layer that reads what has no codes stays in float.
            if name not in weights or weights[name].dtype != np.float32 or node.input[1 - place] not in coded:
                continue
            values = weights[name]
            axis: int | None = None
            if node.op_type not in rules.whole and values.ndim > 1:
                axis = weight_axis(node.op_type, values.ndim, transposed=bool(attribute(node, "transB", 0)))
            others = tuple(each for each in range(values.ndim) if each != axis)
            spec = rules.spec.along(axis)
            low, high = (np.asarray(end(values, axis=others)) for end in (np.min, np.max))
            params = parameters_from_range(low, high, spec)
            reader = Consumer(node.name, place)
            yield Quantizer(f"tool:{node.name}:{name}", name, "weight", spec, params, (reader,))
