"""The same fault without the secret: other names; weights, samples and tensors of the same statistics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from roundoff.case.excerpt import (
    AT_OUTPUTS,
    FACTOR_DB,
    CaseNumbers,
    CaseSamples,
    QuantizedCase,
    measure,
    same_fault,
)
from roundoff.core.progress import Progress
from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, parameters_from_range, representable_range
from roundoff.core.tensors import Array
from roundoff.graph.anonymous import Anonymous, anonymized
from roundoff.graph.load import Model
from roundoff.graph.nodes import subgraphs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import channel_moments, weight_axis
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights, constant_value
from roundoff.measure.metrics import score
from roundoff.measure.pairs import channel_axis_of, measure_pair
from roundoff.messages.message import english
from roundoff.quantize.calibration.calibration import calibrate
from roundoff.quantize.calibration.observer import Observer
from roundoff.quantize.planning.view import BIAS_INPUT, PRODUCTS, setting_inputs
from roundoff.run.budget import RunBudget
from roundoff.run.capture import Samples
from roundoff.run.session import open_session
from roundoff.studies.compare.difference import describe

# Numbers that take the place of confidential ones: other values with the same statistics.

# What is taken over of a distribution is known to so many digits.
_DIGITS = 3
# Points of a distribution function that are taken over, and values per point: a few values must not be given away.
_MOST_POINTS, _VALUES_PER_POINT = 33, 4
SHUFFLED_FROM = 8
"""Slices of fewer values are not drawn anew but changed a little: their order would say nothing, or everything."""
_JITTER = 0.05


def random_like(
    values: Array, axis: int | None, random: np.random.Generator, *, other: int | None = None
) -> Array:
    """Random values; each slice has about the mean, the spread and the extremes that it had.

    Args:
        values: Float array.
        axis: Axis of the slices; None to take all values together.
        random: Where they come from.
        other: A second axis along which slices keep their size, as the input channels of a weight.
    """
    if _rows(values, axis).shape[1] < SHUFFLED_FROM:
        return jittered(values, random)
    sizes = _sizes(values, axis, other)
    rows = _rows(values / sizes, axis)
    drawn = np.stack([_drawn(row, random) for row in rows])
    return np.asarray((_unrowed(drawn, values, axis) * _rounded(sizes)).astype(values.dtype))


def shuffled(values: Array, axis: int | None, random: np.random.Generator, *, other: int | None = None) -> Array:
    """The values of each slice in another order: its statistics stay as they are; arguments as for `like`."""
    if _rows(values, axis).shape[1] < SHUFFLED_FROM:
        return jittered(values, random)
    sizes = _sizes(values, axis, other)
    rows = _rows(values / sizes, axis)
    return np.asarray((_unrowed(random.permuted(rows, axis=1), values, axis) * sizes).astype(values.dtype))


def _sizes(values: Array, axis: int | None, other: int | None) -> Array:
    """Size of the slices along the second axis, once those along the first are of one size; broadcasts."""
    if axis is None or other is None or values.ndim < 2 or values.shape[other] < 2:
        return np.ones((1,) * values.ndim)
    exact = values.astype(np.float64)
    rest = tuple(place for place in range(values.ndim) if place != axis)
    spread = np.sqrt(np.square(exact).mean(axis=rest, keepdims=True))
    even = exact / np.where(spread > 0, spread, 1.0)
    rest = tuple(place for place in range(values.ndim) if place != other)
    found = np.sqrt(np.square(even).mean(axis=rest, keepdims=True))
    return np.where(found > 0, found, 1.0)


def jittered(values: Array, random: np.random.Generator) -> Array:
    """Each value changed by up to five per cent, never by nothing; zero stays zero."""
    change = random.uniform(_JITTER / 5, _JITTER, values.shape) * random.choice([-1, 1], values.shape)
    return np.asarray((values.astype(np.float64) * (1 + change)).astype(values.dtype))


def sample_like(values: Array, random: np.random.Generator) -> Array:
    """An input with the statistics of another one, in which nothing of that can be recognised.

    Of pictures and the like, the two longest axes keep how strongly neighbours resemble each other. Whole numbers
    are drawn between the smallest and the largest; what is only 0 and 1, such as a mask, stays.
    """
    if values.dtype.kind in "iub":
        few = values.size == 0 or (values.min() >= 0 and values.max() <= 1)
        if few:
            return values.copy()
        return random.integers(values.min(), values.max(), values.shape, endpoint=True).astype(values.dtype)
    if values.dtype.kind != "f" or values.size < SHUFFLED_FROM:
        return jittered(values, random) if values.dtype.kind == "f" else values.copy()
    if values.ndim < 3:
        return random_like(values, None, random)
    longest = tuple(sorted(sorted(range(values.ndim), key=lambda axis: -values.shape[axis])[:2]))
    exact = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    spectrum = np.fft.fft2(exact, axes=longest)
    # The same turn for all channels keeps how they go together.
    shape = [values.shape[axis] if axis in longest else 1 for axis in range(values.ndim)]
    noise = np.fft.fft2(random.standard_normal(shape), axes=longest)
    turned = np.real(np.fft.ifft2(spectrum * noise / np.maximum(np.abs(noise), 1e-12), axes=longest))
    rest = tuple(axis for axis in range(values.ndim) if axis not in longest)
    order = (*rest, *longest)
    flat = turned.transpose(order).reshape(-1, shape[longest[0]] * shape[longest[1]])
    source = exact.transpose(order).reshape(flat.shape)
    moved = np.stack([_ranked(row, like_row, random) for row, like_row in zip(flat, source, strict=True)])
    back = moved.reshape([values.shape[axis] for axis in order]).transpose(np.argsort(order))
    return np.ascontiguousarray(back, dtype=values.dtype)


def _ranked(order: Array, source: Array, random: np.random.Generator) -> Array:
    """Values drawn like `source`, put in the order of `order`."""
    drawn = np.sort(_drawn(source, random) if source.size >= SHUFFLED_FROM else jittered(source, random))
    found = np.empty_like(drawn)
    found[np.argsort(order, kind="stable")] = drawn
    return found


def _drawn(row: Array, random: np.random.Generator) -> Array:
    exact = row.astype(np.float64)
    points = int(np.clip(row.size // _VALUES_PER_POINT, 2, _MOST_POINTS))
    grid = np.linspace(0, 1, points)
    function = _rounded(np.quantile(exact, grid))
    # One in each of equal parts, so that mean and spread are met; the ends are the extremes.
    places = (random.permutation(row.size) + random.uniform(size=row.size)) / row.size
    places[np.argmin(places)], places[np.argmax(places)] = 0.0, 1.0
    found = np.interp(places, grid, function)
    centre, spread = _rounded(np.array([exact.mean(), exact.std()]))
    if found.std() > 0 and spread > 0:
        found = np.clip((found - found.mean()) * (spread / found.std()) + centre, function[0], function[-1])
        found[np.argmin(places)], found[np.argmax(places)] = function[0], function[-1]
    return np.asarray(found.astype(row.dtype))


def _rounded(values: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        step = 10.0 ** (np.floor(np.log10(np.abs(values))) - _DIGITS + 1)
        return np.where(values == 0, 0.0, np.round(values / step) * step)


def _rows(values: Array, axis: int | None) -> Array:
    if axis is None or values.ndim < 2:
        return values.reshape(1, -1) if values.ndim != 1 else values.reshape(-1, 1)
    moved = np.moveaxis(values, axis, 0)
    return moved.reshape(moved.shape[0], -1)


def _unrowed(rows: Array, values: Array, axis: int | None) -> Array:
    if axis is None or values.ndim < 2:
        return rows.reshape(values.shape)
    moved = np.moveaxis(values, axis, 0)
    return np.ascontiguousarray(np.moveaxis(rows.reshape(moved.shape), 0, axis))


# Bringing a model with other weights to the operating point of the original: results of the same mean and size.
# Random filters answer to a picture more weakly than trained ones. Without this, means and biases would outweigh
# everything else from the first layers on, and with them any error.

# Layers are matched from the inputs on, in so many steps at the most; those of one step together, and twice.
_MOST_STEPS = 24
_LARGEST_GAIN = 1e4

Moments = tuple[Array, Array]
"""Mean and standard deviation of each channel."""


@dataclass(frozen=True, slots=True)
class _ProductLayer:
    """A node that multiplies by a constant weight.

    Attributes:
        result: The tensor it writes.
        axis: Where its channels are.
        weight: Name of the weight.
        bias: Name of the bias; empty when it has none.
    """

    result: str
    axis: int
    weight: str
    bias: str


def results_of(model: Model, samples: Samples, *, names: Mapping[str, str]) -> dict[str, Moments]:
    """Mean and size of what each layer gives.

    Args:
        model: The original.
        samples: What it is fed.
        names: What tensors are to be called.
    """
    found = _moments(model, samples, list(_layers(model)))
    return {names[name]: moments for name, moments in found.items()}


def match_statistics(model: Model, samples: Samples, wanted: Mapping[str, Moments]) -> None:
    """Scale weights and shift biases, in place, until layers give results of the mean and size wanted.

    All weights of a layer get the same factor, so that its channels differ as they did.
    """
    layers = [layer for layer in _layers(model) if layer.result in wanted]
    size = -(-len(layers) // _MOST_STEPS) if layers else 1
    repeats = 1 if size == 1 else 2
    for start in range(0, len(layers), size):
        for _ in range(repeats):
            group = layers[start : start + size]
            found = _moments(model, samples, group)
            for layer in group:
                _adjust(model, layer, found[layer.result], wanted[layer.result])


def _layers(model: Model) -> Iterator[_ProductLayer]:
    constants = {tensor.name for tensor in model.proto.graph.initializer}
    for node in model.proto.graph.node:
        if node.op_type not in PRODUCTS or len(node.input) < 2 or node.input[1] not in constants:
            continue
        place = BIAS_INPUT.get(node.op_type, len(node.input))
        bias = node.input[place] if place < len(node.input) and node.input[place] in constants else ""
        axis = 1 if node.op_type in ("Conv", "ConvTranspose") else -1
        yield _ProductLayer(node.output[0], axis, node.input[1], bias)


def _moments(model: Model, samples: Samples, layers: Sequence[_ProductLayer]) -> dict[str, Moments]:
    names = [layer.result for layer in layers]
    session = open_session(model, outputs=tap(model, names))
    seen: dict[str, list[Array]] = {name: [] for name in names}
    for index in range(len(samples.names)):
        for name, values in zip(names, session.run(samples.feed(index)), strict=True):
            seen[name].append(values)
    found = {}
    for layer in layers:
        mean, variance = channel_moments(seen[layer.result], layer.axis)
        found[layer.result] = (mean, np.sqrt(variance))
    return found


def _adjust(model: Model, layer: _ProductLayer, now: Moments, wanted: Moments) -> None:
    live = (now[1] > 0) & (wanted[1] > 0)
    gain = 1.0
    if live.any():
        gain = float(np.exp(np.median(np.log(wanted[1][live] / now[1][live]))))
    if not np.isfinite(gain) or not 1 / _LARGEST_GAIN < gain < _LARGEST_GAIN:
        return
    tensors = {tensor.name: tensor for tensor in model.proto.graph.initializer}
    weight = tensors[layer.weight]
    _store(weight, np.asarray(constant_value(weight, model)) * gain)
    if not layer.bias:
        return
    bias = tensors[layer.bias]
    values = np.asarray(constant_value(bias, model)).astype(np.float64)
    if values.size == wanted[0].size:
        flat = values.reshape(-1)
        _store(bias, (wanted[0] - gain * (now[0] - flat)).reshape(values.shape))


def _store(tensor: Any, values: Array) -> None:
    from onnx.numpy_helper import from_array, to_array

    tensor.CopyFrom(from_array(values.astype(to_array(tensor).dtype), tensor.name))


Synthesis = Literal["random", "matched", "shuffled"]
"""How weights are replaced: by random ones; by random ones that are then scaled, with biases shifted, until layers
give results of the size and mean they had; the same with the weights of each channel in another order."""

Ends = tuple[Array, Array]
# Fewer codes of 8 bits are no weight.
_CODES_FROM = 64


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticCase:
    """A case that tells nothing.

    Attributes:
        case: The case.
        names: New name of every node and tensor; of a tensor that is called like a node, that of the node.
        tensors: New name of every tensor.
        others: New name of everything else.
        replaced: How many weights were replaced.
    """

    case: QuantizedCase
    names: dict[str, str]
    tensors: dict[str, str]
    others: dict[str, str]
    replaced: int


def synthetic_case(case: QuantizedCase, how: Synthesis, *, keep_data: bool, seed: int) -> SyntheticCase:
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
        match_statistics(anonymous.model, samples, results_of(original, case.samples, names=anonymous.tensors))
    renamed = _anonymous_quantizers(case.quantized.quantizers, anonymous)
    scaled = _scaled(case, renamed, QuantizedCase(QuantizedModel(anonymous.model, ()), samples))
    quantized = QuantizedModel(anonymous.model, tuple(scaled))
    everything = {**anonymous.tensors, **anonymous.nodes}
    return SyntheticCase(
        QuantizedCase(quantized, samples), everything, anonymous.tensors, anonymous.others, replaced
    )


def _anonymous_quantizers(quantizers: Sequence[Quantizer], names: Anonymous) -> list[Quantizer]:
    """The same quantizers for the same model under other names; codes belong to its weights, and are left out.

    Args:
        quantizers: The originals.
        names: The model, and what everything in it was called.
    """
    chain = {each.name: f"q_{place}" for place, each in enumerate(quantizers)}
    return [
        replace(
            each,
            name=chain[each.name],
            tensor=names.tensors[each.tensor],
            consumers=tuple(Consumer(names.nodes[edge.node], edge.input) for edge in each.consumers),
            after=chain.get(each.after, ""),
            codes=None,
        )
        for each in quantizers
    ]


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
            changed = (shuffled if shuffle else random_like)(values, axis, random, other=other)
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


def _scaled(before: QuantizedCase, renamed: Sequence[Quantizer], after: QuantizedCase) -> list[Quantizer]:
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


# Trying synthetic cases until one shows the fault of the original.

# In this order: the more of the original stays, the later.
_TRIES: tuple[tuple[Synthesis, int], ...] = (
    ("random", 0), ("matched", 0), ("random", 1), ("matched", 1), ("shuffled", 0), ("matched", 2), ("shuffled", 1),
)  # fmt: skip
_WEIGHTS = {
    "random": english("random values; each channel has the mean, spread and extremes it had, to three digits"),
    "matched": english(
        "random values; each channel has the mean, spread and extremes it had, to three digits, times one factor "
        "per layer; biases are shifted so that results have the means they had"
    ),
    "shuffled": english(
        "those of each channel in another order, times one factor per layer; biases are shifted so that results "
        "have the means they had"
    ),
}
_KEPT = english("as they are (--keep-data)")
_SYNTHETIC = english(
    "synthetic, with the distribution and the spatial spectrum of each channel, and nothing else of it"
)


@dataclass(frozen=True, slots=True)
class Confidentiality:
    """What was done to keep secrets, and whether the fault is still there.

    Attributes:
        weights: How weights were replaced, in words.
        data: What became of samples, in words.
        before: What the original shows.
        names: New name of every node that `before` speaks of.
        close_db: By how much errors may differ.
        where: Where they differ by no more.
        reasons: Why it does not show the same fault; empty when it does.
        tries: How many synthetic cases were tried.
    """

    weights: str
    data: str
    before: CaseNumbers
    names: dict[str, str]
    close_db: float
    where: str
    reasons: tuple[str, ...]
    tries: int


@dataclass(frozen=True, slots=True, eq=False)
class FoundSynthetic:
    """A synthetic case that shows the fault, or nearly.

    Attributes:
        case: The case and its names.
        numbers: What it shows.
        confidence: Whether that is the fault of the original.
    """

    case: SyntheticCase
    numbers: CaseNumbers
    confidence: Confidentiality


def find_synthetic(
    case: QuantizedCase, before: CaseNumbers, *, keep_data: bool, seed: int, limits: RunBudget, progress: Progress
) -> FoundSynthetic:
    """The first synthetic case that shows the same fault, also at the outputs; else the one that lacks least.

    Args:
        case: The original.
        before: What it shows.
        keep_data: Whether samples stay as they are.
        seed: Of what is chosen at random.
        limits: What runs may take.
        progress: Told of runs.

    Raises:
        BadInput: The model has operations whose names would tell.
        ModelFailed: A model cannot be run.
    """
    best: FoundSynthetic | None = None
    for number, (how, offset) in enumerate(_TRIES, start=1):
        tried = synthetic_case(case, how, keep_data=keep_data, seed=seed + offset)
        numbers = measure(tried.case, limits=limits, progress=progress)
        shown = same_fault(before, numbers, tried.names, close_db=FACTOR_DB)
        confidence = Confidentiality(
            weights=_WEIGHTS[how],
            data=_KEPT if keep_data else _SYNTHETIC,
            before=before,
            names={name: tried.names[name] for name in before.culprits if name in tried.names},
            close_db=FACTOR_DB,
            where=shown.where,
            reasons=shown.reasons,
            tries=number,
        )
        if best is None or _lack(confidence) < _lack(best.confidence):
            best = FoundSynthetic(tried, numbers, confidence)
        if _lack(confidence) == (0, False):
            break
    assert best is not None  # noqa: S101 - there is at least one to try
    return best


def _lack(confidence: Confidentiality) -> tuple[int, bool]:
    return len(confidence.reasons), confidence.where != AT_OUTPUTS


# Two tensors with their elements in another order, the same for both: every error is still there.

# Channels of fewer elements have no order to speak of: these are mixed with all others.
_FEWEST = 16
# Sums in another order differ in the last bits.
_SAME = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class PermutedPair:
    """A pair without its order.

    Attributes:
        reference: One side.
        candidate: The other.
        reasons: Why it does not show what the original shows; empty when it does.
    """

    reference: Array
    candidate: Array
    reasons: tuple[str, ...]


def permuted_alike(reference: Array, candidate: Array, *, seed: int) -> PermutedPair:
    """Put the elements of each channel into another order, alike on both sides, and see if the fault stays.

    Args:
        reference: One side.
        candidate: The other, of the same shape.
        seed: Of the order.
    """
    axis = channel_axis_of(reference.shape)
    if axis is None or reference.size < _FEWEST * reference.shape[axis]:
        axis = None
    random = np.random.default_rng(seed)
    sides = [
        np.asarray(each) if axis is not None else np.reshape(each, (1, -1)) for each in (reference, candidate)
    ]
    along = 0 if axis is None else axis
    rows = [_rows(each, along) for each in sides]
    order = random.permuted(np.broadcast_to(np.arange(rows[0].shape[1]), rows[0].shape), axis=1)
    mixed = [
        _unrowed(np.take_along_axis(row, order, axis=1), side, along).reshape(reference.shape)
        for row, side in zip(rows, sides, strict=True)
    ]
    before, after = _seen(np.asarray(reference), np.asarray(candidate), axis), _seen(mixed[0], mixed[1], axis)
    reasons = []
    if before[0] != after[0]:
        reasons.append(
            english("the difference looks like {after} instead of {before}", after=after[0], before=before[0])
        )
    if not np.isclose(before[1], after[1], rtol=_SAME):
        reasons.append(
            english("the error is {after:.4g} dB instead of {before:.4g} dB", after=after[1], before=before[1])
        )
    return PermutedPair(mixed[0], mixed[1], tuple(reasons))


def _seen(reference: Array, candidate: Array, axis: int | None) -> tuple[str, float]:
    moments = measure_pair(reference, candidate, channel_axis=axis)
    return describe(moments, reference, candidate).kind, score(moments).values.get("sqnr_db", np.nan)
