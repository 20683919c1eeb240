"""The same fault without the secret: other names, other weights and other samples of the same statistics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from roundoff.analysis.bundle.case import Case, CaseSamples
from roundoff.analysis.bundle.settling import results_of, settle
from roundoff.analysis.bundle.stand_ins import like, sample_like, shuffled
from roundoff.analysis.channel_axes import weight_axis
from roundoff.core.quantization import parameters_from_range, representable_range
from roundoff.core.quantizer import Consumer, Quantizer, QuantParams
from roundoff.core.tensors import Array
from roundoff.graph.anonymous import anonymized
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights, constant_value
from roundoff.graph.wiring import subgraphs
from roundoff.quantize.calibration import Observer, calibrate
from roundoff.quantize.planning.sockets import PRODUCTS, setting_inputs
from roundoff.runtime.feeds import Samples

__all__ = ["Disguise", "Disguised", "disguised"]

Disguise = Literal["random", "settled", "shuffled"]
"""How weights are replaced: by random ones; by random ones that are then scaled, with biases shifted, until layers
give results of the size and mean they had; the same with the weights of each channel in another order."""

Ends = tuple[Array, Array]
# Fewer codes of 8 bits are no weight.
_CODES_FROM = 64


@dataclass(frozen=True, slots=True, eq=False)
class Disguised:
    """A case that tells nothing.

    Attributes:
        case: The case.
        names: New name of every node and tensor; of a tensor that is called like a node, that of the node.
        tensors: New name of every tensor.
        others: New name of everything else.
        replaced: How many weights were replaced.
    """

    case: Case
    names: dict[str, str]
    tensors: dict[str, str]
    others: dict[str, str]
    replaced: int


def disguised(case: Case, how: Disguise, *, keep_data: bool, seed: int) -> Disguised:
    """Make a case that should show the same fault, and tells nothing of the model.

    Each quantizer covers the same share of what its tensor holds as before, so that one that is too wide or too
    narrow remains so.

    Args:
        case: The original.
        how: How weights are replaced.
        keep_data: Whether samples stay as they are.
        seed: Of what is chosen at random.

    Raises:
        BadInput: The model has operations whose names would tell.
    """
    random = np.random.default_rng(seed)
    original = case.quantized.float_model
    anonymous = anonymized(original)
    replaced = _replace_weights(anonymous.model, shuffle=how == "shuffled", random=random)
    feeds = tuple(
        {
            anonymous.tensors[name]: values if keep_data else sample_like(np.asarray(values), random)
            for name, values in feed.items()
        }
        for feed in case.samples.feeds
    )
    names = tuple(f"sample_{number}" for number in range(len(feeds)))
    samples = CaseSamples("samples", names, feeds)
    if how != "random":
        settle(anonymous.model, samples, results_of(original, case.samples, names=anonymous.tensors))
    renamed = [_renamed(each, place, anonymous.tensors, anonymous.nodes) for place, each in
               enumerate(case.quantized.quantizers)]  # fmt: skip
    chain = {old.name: new.name for old, new in zip(case.quantized.quantizers, renamed, strict=True)}
    renamed = [replace(each, after=chain.get(each.after, "")) for each in renamed]
    scaled = _scaled(case, renamed, Case(QuantizedModel(anonymous.model, ()), samples))
    quantized = QuantizedModel(anonymous.model, tuple(scaled))
    everything = {**anonymous.tensors, **anonymous.nodes}
    return Disguised(Case(quantized, samples), everything, anonymous.tensors, anonymous.others, replaced)


def _replace_weights(model: Model, *, shuffle: bool, random: np.random.Generator) -> int:
    """Replace constants in place, those of subgraphs too; numbers alone and settings, such as limits, stay."""
    from onnx.numpy_helper import from_array

    graphs = [model.proto.graph, *_inner_graphs(model.proto.graph)]
    nodes = [node for graph in graphs for node in graph.node]
    readers = {name: (node, place) for node in reversed(nodes) for place, name in enumerate(node.input)}
    settings = {node.input[place] for node in nodes for place in setting_inputs(node.op_type, len(node.input))}
    holders = [tensor for graph in graphs for tensor in graph.initializer]
    holders += [node for node in nodes if node.op_type == "Constant"]
    count = 0
    for holder in holders:
        inner = holder.attribute[0].t if hasattr(holder, "op_type") else holder
        name = holder.output[0] if hasattr(holder, "op_type") else holder.name
        values = np.asarray(constant_value(holder, model))
        if name in settings or not inner.dims or not _tells(values):
            continue
        axis, other = _axes(*readers[name], values.ndim) if name in readers else (None, None)
        if values.dtype.kind == "f":
            changed = (shuffled if shuffle else like)(values, axis, random, other=other)
        else:
            changed = random.permuted(values.reshape(-1)).reshape(values.shape)
        inner.CopyFrom(from_array(changed, inner.name))
        count += 1
    return count


def _inner_graphs(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        for inner in subgraphs(node):
            yield inner
            yield from _inner_graphs(inner)


def _tells(values: Array) -> bool:
    """Whether values are weights: floats, or codes of 8 bits. Others are shapes, places and the like."""
    codes = values.dtype.kind in "iu" and values.dtype.itemsize == 1 and values.size >= _CODES_FROM
    return (values.dtype.kind == "f" and values.size > 1) or codes


def _axes(node: Any, place: int, rank: int) -> tuple[int | None, int | None]:
    """The axes of a constant that has a slice for each channel of the result, and for each of the input."""
    if rank < 2 or place != 1:
        return (0, None) if rank > 1 else (None, None)
    transposed = any(each.name == "transB" and each.i for each in node.attribute)
    axis = weight_axis(node.op_type, rank, transposed=transposed)
    if node.op_type not in PRODUCTS:
        return axis, None
    if node.op_type in ("Conv", "ConvTranspose"):
        return axis, 1 - axis
    return axis, rank - 2 if axis == rank - 1 else rank - 1


def _renamed(each: Quantizer, place: int, tensors: Mapping[str, str], nodes: Mapping[str, str]) -> Quantizer:
    consumers = tuple(Consumer(nodes[consumer.node], consumer.input) for consumer in each.consumers)
    # Codes belong to the weights that are gone.
    return replace(each, name=f"q_{place}", tensor=tensors[each.tensor], consumers=consumers, codes=None)


def _scaled(before: Case, renamed: Sequence[Quantizer], after: Case) -> list[Quantizer]:
    """The quantizers with scales for what their tensors hold now."""
    old_quantizers = before.quantized.quantizers
    old = _ends(before.quantized.float_model, old_quantizers, before.samples)
    new = _ends(after.quantized.float_model, renamed, after.samples)
    found = [
        each if each.kind == "bias" else replace(each, params=_moved(was, old[was.name], new[each.name]))
        for was, each in zip(old_quantizers, renamed, strict=True)
    ]
    by_place = {(consumer.node, consumer.input): each for each in found for consumer in each.consumers}
    was_at = {(consumer.node, consumer.input): each for each in old_quantizers for consumer in each.consumers}
    return [
        each if each.kind != "bias" else replace(each, params=_bias(was, each, was_at, by_place, (old, new)))
        for was, each in zip(old_quantizers, found, strict=True)
    ]


def _bias(
    was: Quantizer,
    each: Quantizer,
    was_at: Mapping[tuple[str, int], Quantizer],
    now_at: Mapping[tuple[str, int], Quantizer],
    ends: tuple[Mapping[str, Ends], Mapping[str, Ends]],
) -> QuantParams:
    """Scale of a bias: as many times the product of the scales of input and weight as before."""
    change: Array = np.ones(())
    for place in (0, 1):
        old = was_at.get((was.consumers[0].node, place)) if was.consumers else None
        new = now_at.get((each.consumers[0].node, place)) if each.consumers else None
        if old is None or new is None:
            return _moved(was, ends[0][was.name], ends[1][each.name])
        change = change * (new.params.scale.astype(np.float64) / old.params.scale.astype(np.float64))
    scale = np.maximum(was.params.scale.astype(np.float64) * change, np.finfo(np.float32).tiny)
    return QuantParams(np.broadcast_to(scale, was.params.scale.shape).astype(np.float32), was.params.zero_point)


def _moved(was: Quantizer, old: Ends, new: Ends) -> QuantParams:
    """Scale and zero point that cover of the new ends what the old ones did of theirs."""
    shape = was.params.scale.shape
    covered = representable_range(was.params, was.spec)
    width = np.maximum(np.maximum(old[1], 0) - np.minimum(old[0], 0), 1e-30)
    now = np.maximum(np.maximum(new[1], 0) - np.minimum(new[0], 0), 0.0)
    if was.spec.symmetric:
        most, before = (np.maximum(np.abs(ends[0]), np.abs(ends[1])) for ends in (new, old))
        reach = np.maximum(np.abs(covered[0]), np.abs(covered[1]))
        steps = reach / was.params.scale
        share = np.where(before > 0, reach / np.maximum(before, 1e-30), 1.0)
        scale = np.where((most > 0) & (before > 0), share * most / steps, was.params.scale)
        scale = np.clip(scale, np.finfo(np.float32).tiny, np.finfo(np.float32).max).reshape(shape)
        return QuantParams(scale.astype(np.float32), was.params.zero_point)
    low = np.where(
        old[0] < -1e-3 * width, covered[0] / np.minimum(old[0], -1e-30) * new[0], covered[0] / width * now
    )
    high = np.where(
        old[1] > 1e-3 * width, covered[1] / np.maximum(old[1], 1e-30) * new[1], covered[1] / width * now
    )
    return parameters_from_range(
        np.minimum(low, 0.0).reshape(shape), np.maximum(high, 0.0).reshape(shape), was.spec
    )


def _ends(model: Model, quantizers: Sequence[Quantizer], samples: Samples) -> dict[str, Ends]:
    """Smallest and largest value of what each quantizer quantizes, of the shape of its scale."""
    weights = Weights(model)
    wanted: dict[str, int | None] = {}
    for each in quantizers:
        if each.tensor not in weights.protos:
            wanted[each.tensor] = (
                wanted.get(each.tensor, each.spec.axis) if each.spec.axis is None else each.spec.axis
            )
    seen = calibrate(model, samples, wanted, detail="range").observations
    found = {}
    for each in quantizers:
        if each.tensor in weights.protos:
            observer = Observer(each.spec.axis, ranges_only=True)
            observer.add(weights[each.tensor])
            observation = observer.observation()
        else:
            observation = seen[each.tensor]
        if each.spec.axis is None:
            observation = observation.without_channels()
        shape = np.shape(each.params.scale)
        low, high = (
            np.where(np.isfinite(end), end, 0.0).reshape(shape if end.size == np.prod(shape) else (-1,))
            for end in (observation.low, observation.high)
        )
        found[each.name] = (low, high)
    return found
