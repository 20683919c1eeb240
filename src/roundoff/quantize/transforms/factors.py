"""Channels that hang together, and the layers that read or write them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.draft import Assembly, Draft, change_constants
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.nodes import set_attribute
from roundoff.messages.message import Message, english, message
from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import StepContext
from roundoff.quantize.transforms.scaling_map import FIXED, Adjustment, Limit, ScaledLayer, ScalingMap
from roundoff.run.capture import LiveSource


@dataclass(frozen=True, slots=True, eq=False)
class ChannelStatistics:
    """Of each channel of a tensor, elements that are not finite left out; float64 [C].

    Attributes:
        low: Smallest value; 0 where there is none.
        high: Largest value.
        energy: Mean of the squares.
        moving: Share of the values that are neither zero nor the largest: of a Relu6, those it hands on.
        count: How many there were, in all samples.
    """

    low: Array
    high: Array
    energy: Array
    moving: Array
    count: Array

    @property
    def peak(self) -> Array:
        """Largest magnitude."""
        return np.maximum(-self.low, self.high)


def channel_statistics(
    model: Model, context: StepContext, tensors: Mapping[str, int], *, title: str
) -> dict[str, ChannelStatistics]:
    """Observe channels on all samples, in one pass.

    Args:
        model: The model.
        context: Where the samples are.
        tensors: Tensors, each with the axis of its channels.
        title: What progress says.

    Raises:
        BadInput: A tensor's number of channels changes from sample to sample, or samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    tallies = {name: _ChannelTally() for name in tensors}
    if not tensors:
        return {}
    source = LiveSource(
        model, context.samples, tensors=list(tensors), max_memory=context.max_memory, threads=context.threads
    )
    names = [info.name for info in source.tensors]
    context.progress.start(title, len(source.samples))
    try:
        for sample in source.samples:
            for name in names:
                if not tallies[name].add(np.moveaxis(source.read(name, sample), tensors[name], 0)):
                    what = english(
                        "The number of channels of {name!r} differs from sample to sample ({sample!r}).",
                        name=name,
                        sample=sample,
                    )
                    raise BadInput(what, fix=english("give samples of one shape"))
            context.progress.advance()
    finally:
        context.progress.finish()
        source.close()
    return {name: tallies[name].result() for name in names}


class _ChannelTally:
    """What was seen of one tensor."""

    def __init__(self) -> None:
        self._low, self._high, self._squares, self._count = (np.zeros(0) for _ in range(4))
        self._still, self._at_high = np.zeros(0), np.zeros(0)

    def add(self, values: Array) -> bool:
        """Take in the values of one sample, channels first; False when these are not as many as before."""
        rows = values.reshape(values.shape[0], -1)
        fine = np.isfinite(rows)
        whole = bool(fine.all())
        if not whole:
            rows = np.where(fine, rows, 0)
        if not self._count.size:
            self._low, self._high = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
            self._squares, self._count, self._still, self._at_high = (np.zeros(len(rows)) for _ in range(4))
        if len(rows) != self._count.size:
            return False
        seen: Any = True if whole else fine
        self._low = np.minimum(self._low, rows.min(axis=1, initial=np.inf, where=seen))
        high = np.maximum(self._high, rows.max(axis=1, initial=-np.inf, where=seen))
        equal = np.count_nonzero(rows == high[:, None].astype(rows.dtype), axis=1)
        self._at_high = np.where(high > self._high, 0, self._at_high) + equal
        self._high = high
        self._still += np.count_nonzero((rows == 0) & fine, axis=1)
        self._squares += np.einsum("cn,cn->c", rows, rows, dtype=np.float64)
        self._count += np.count_nonzero(fine, axis=1)
        return True

    def result(self) -> ChannelStatistics:
        seen = self._count > 0
        still = self._still + np.where(self._high == 0, 0, self._at_high)
        return ChannelStatistics(
            np.where(seen, self._low, 0.0),
            np.where(seen, self._high, 0.0),
            self._squares / np.maximum(self._count, 1),
            1 - np.minimum(still / np.maximum(self._count, 1), 1),
            self._count,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Channels that can be scaled and are read together.

    Attributes:
        roots: The numbers that stand for them, in rising order.
        layers: Layers that read them.
        writers: Layers that write them.
    """

    roots: tuple[int, ...]
    layers: tuple[ScaledLayer, ...]
    writers: tuple[ScaledLayer, ...]


def group_layers(found: ScalingMap) -> tuple[Group, ...]:
    """Layers with common channels; those that read fixed ones only are in no group."""
    owner: dict[int, int] = {}
    for layer in found.layers:
        free = _free(found, layer.inputs)
        ties = {_leader(owner, root) for root in free}
        owner |= dict.fromkeys((*free, *ties), min(ties, default=FIXED))
    leaders = {root: _leader(owner, root) for root in owner}
    roots: dict[int, list[int]] = defaultdict(list)
    for root in sorted(leaders):
        roots[leaders[root]].append(root)
    readers: dict[int, list[ScaledLayer]] = defaultdict(list)
    writers: dict[int, list[ScaledLayer]] = defaultdict(list)
    for layer in found.layers:
        for side, channels in ((readers, layer.inputs), (writers, layer.writes)):
            for leader in {leaders[root] for root in _free(found, channels) if root in leaders}:
                side[leader].append(layer)
    return tuple(
        Group(tuple(members), tuple(readers[leader]), tuple(writers[leader]))
        for leader, members in sorted(roots.items())
    )


def _free(found: ScalingMap, channels: Array) -> list[int]:
    """The numbers that stand for channels which can be scaled, in rising order."""
    there = np.zeros(found.size, bool)
    there[found.roots(channels)] = True
    there[FIXED] = False
    return [int(root) for root in np.flatnonzero(there)]


def _leader(owner: dict[int, int], root: int) -> int:
    while owner.get(root, root) != root:
        root = owner[root]
    return root


def magnitudes(weight: Array) -> Array:
    """The largest magnitude at each place of a weight's first two axes, float64."""
    values = np.abs(weight.astype(np.float64))
    return np.asarray(values.max(axis=tuple(range(2, values.ndim)), initial=0.0))


# Putting factors per channel into the constants of a model.


def factor_table(found: ScalingMap, factors: Mapping[int, float]) -> Array:
    """The factor of every channel, float64 [size].

    Args:
        found: The map.
        factors: Factors of the numbers that stand for channels; 1 where nothing is said.
    """
    table = np.ones(found.size)
    table[list(factors)] = list(factors.values())
    return np.asarray(table[found.table])


def rounded_to_power_of_two(factors: Mapping[int, float]) -> dict[int, float]:
    """The nearest powers of two; with these no number of the network is rounded anew."""
    return {channel: float(2.0 ** np.rint(np.log2(factor))) for channel, factor in factors.items()}


def rescaled(model: Model, found: ScalingMap, factors: Mapping[int, float]) -> Model:
    """The model with channels divided by their factors where they arise, and multiplied where they are used.

    Args:
        model: The model of the map; it is not changed.
        found: The map.
        factors: Positive factors of the numbers that stand for channels; 1 where nothing is said.

    Raises:
        CannotFold: A constant would not be finite, or not fit into one file.
    """
    draft, table = Draft(model), factor_table(found, factors)
    for (node, position), adjustments in _by_constant(found).items():
        values = draft.constants.value(draft.nodes[node].input[position])
        change = _change(adjustments, table)
        if np.all(change == 1):
            continue
        with np.errstate(over="ignore"):
            changed = values.astype(np.float64) * _with_rank_of(values, change)
        name = draft.nodes[node].input[position]
        change_constants(draft, [(draft.nodes[node], position, changed)], dtype_of=name)
    return draft.finish()


def _by_constant(found: ScalingMap) -> dict[tuple[str, int], list[Adjustment]]:
    grouped: dict[tuple[str, int], list[Adjustment]] = defaultdict(list)
    for each in found.adjustments:
        grouped[each.node, each.position].append(each)
    return grouped


def _change(adjustments: list[Adjustment], table: Array) -> Array:
    change = np.ones(())
    for each in adjustments:
        if each.times is not None:
            change = change * table[each.times]
        if each.over is not None:
            change = change / table[each.over]
    return np.asarray(change)


def _with_rank_of(values: Array, change: Array) -> Array:
    """Without axes of size 1 in front that the constant does not have: a bias stays a vector."""
    spare = change.ndim - values.ndim
    while spare > 0 and change.shape[0] == 1:
        change, spare = change[0], spare - 1
    return change


# Which nodes a set of factors changes, and how.


def participants(found: ScalingMap, factors: Mapping[int, float]) -> tuple[Participation, ...]:
    """Nodes whose constants change, in execution order.

    Args:
        found: The map.
        factors: Factors of the numbers that stand for channels.
    """
    read: dict[str, Array] = {}
    written: dict[str, Array] = {}
    table = factor_table(found, factors)
    for each in found.adjustments:
        for channels, side in ((each.times, read), (each.over, written)):
            values = np.ones(1) if channels is None else table[channels].ravel()
            side[each.node] = np.concatenate([side.get(each.node, np.ones(0)), values])
    taken = []
    for node, inputs in read.items():
        outputs = written.get(node, np.ones(1))
        scaled = [(inputs != 1).any(), (outputs != 1).any()]
        if any(scaled):
            parts = [_range_of("quantize.channels_in", inputs)] if scaled[0] else []
            parts += [_range_of("quantize.channels_out", 1 / outputs)] if scaled[1] else []
            text = parts[0] if len(parts) == 1 else message("terminal.comma", before=parts[0], after=parts[1])
            role = "both" if all(scaled) else "reader" if scaled[0] else "writer"
            taken.append(Participation(node, role, text))
    return tuple(taken)


def _range_of(key: str, factors: Array) -> Message:
    """The smallest and the largest of some factors: ``0.125 .. 30``."""
    return message(key, low=f"{factors.min():.3g}", high=f"{factors.max():.3g}")


# Clip, such as Relu6: its limits do not scale along with the channels that it limits.

LARGEST_LOGARITHM = float(np.log(2.0**13))
"""Factors stay between this and one over it: beyond, integer biases need more than 32 bits."""

_MARGIN = 1.05
"""Scaled values stay this far below a limit: values somewhat beyond what the samples show are not cut either."""
_CLIP_TAKES_INPUTS = 11


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What limits allow.

    Attributes:
        low: Least logarithm of the factor of each channel, float64 [size].
        fixed: Channels that reach a limit, bool [size]; they must not be scaled.
    """

    low: Array
    fixed: Array


def free_bounds(found: ScalingMap) -> Bounds:
    """Bounds where each channel can have limits of its own."""
    return Bounds(np.full(found.size, -LARGEST_LOGARITHM), np.zeros(found.size, bool))


def channel_axis(limit: Limit) -> int | None:
    """The one axis along which the channels of what is limited differ; None when there are several, or none."""
    axes = [axis for axis, size in enumerate(limit.channels.shape) if size > 1]
    return axes[0] if len(axes) == 1 else None


def bounds_of(found: ScalingMap, seen: Mapping[str, ChannelStatistics]) -> Bounds:
    """Which factors leave every value of the samples within the limits that it was within.

    A limit of zero scales along. A channel that reaches another one is cut off there, and would be cut off
    elsewhere if it were scaled.

    Args:
        found: The map.
        seen: What was seen of what is limited, by tensor; a tensor that is missing is fixed.
    """
    bounds = free_bounds(found)
    for limit in found.limits:
        roots = found.roots(limit.channels).ravel()
        if limit.source not in seen or channel_axis(limit) is None:
            bounds.fixed[roots] = True
            continue
        channels = seen[limit.source]
        # How much of the way to a limit the samples go; beyond 1 they are cut off.
        reached = np.maximum(_share(channels.high, limit.high), _share(-channels.low, -limit.low))
        bounds.fixed[roots[reached * _MARGIN > 1]] = True
        with np.errstate(divide="ignore"):
            np.maximum.at(bounds.low, roots, np.log(reached * _MARGIN))
    return bounds


def _share(values: Array, limit: float) -> Array:
    """How much of the way from zero to a limit values go; nothing where the limit is zero, or infinite."""
    if limit == 0 or not np.isfinite(limit):
        return np.zeros(values.shape)
    # A limit on the wrong side of zero is always reached.
    return np.maximum(values, 0) / limit if limit > 0 else np.full(values.shape, np.inf)


def with_channel_limits(
    model: Model, found: ScalingMap, factors: Mapping[int, float]
) -> tuple[Model, tuple[str, ...]]:
    """Give limits that do not fit scaled channels a value for each channel: exact for every input.

    The Clip stays, at the widest of the new limits, so that it is fused as before; a Min and, where the lower
    limit is not zero, a Max behind it cut each channel where it belongs.

    Args:
        model: The model with scaled channels; it is not changed.
        found: The map.
        factors: The factors.

    Returns:
        The model, and the names of the Clips that were given others.
    """
    table = factor_table(found, factors)
    limits = {limit.node: limit for limit in found.limits if (table[limit.channels] != 1).any()}
    if not limits:
        return model, ()
    graph = Assembly(model)
    for tensor in model.proto.graph.initializer:
        graph.add_tensor(tensor)
    for node in model.proto.graph.node:
        copy = graph.copy_node(node)
        if node.name in limits:
            limit = limits[node.name]
            _split(graph, copy, limit, table[limit.channels])
    graph.proto.graph.value_info.extend(model.proto.graph.value_info)
    return Model(graph.proto, model.path, inside_bytes(graph.proto)), tuple(limits)


def _split(graph: Assembly, clip: Any, limit: Limit, factors: Array) -> None:
    result = clip.output[0]
    while factors.ndim > 1 and factors.shape[0] == 1:
        factors = factors[0]
    lows, highs = (np.asarray(value / factors).astype(limit.dtype) for value in (limit.low, limit.high))
    _set_limits(graph, clip, lows.min(), highs.max())
    steps = [("Max", lows)] if np.isfinite(limit.low) and limit.low else []
    steps += [("Min", highs)] if np.isfinite(limit.high) and limit.high else []
    current = clip.output[0] = graph.free_tensor(f"{result}_widest")
    for index, (op_type, values) in enumerate(steps):
        held = graph.add_constant(values, f"{result}_{op_type.lower()}")
        target = result if index == len(steps) - 1 else graph.free_tensor(f"{result}_{op_type}")
        graph.add_node(op_type, [current, held], target, name=f"{clip.name}_{op_type}")
        current = target


def _set_limits(graph: Assembly, clip: Any, low: Array, high: Array) -> None:
    if graph.opset < _CLIP_TAKES_INPUTS:
        set_attribute(clip, "min", float(low))
        set_attribute(clip, "max", float(high))
        return
    del clip.input[1:]
    clip.input.extend(
        [graph.add_constant(value, f"{clip.name}_{side}") for side, value in (("low", low), ("high", high))]
    )
