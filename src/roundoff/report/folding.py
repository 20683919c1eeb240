"""A network in few boxes: fused units, idioms, moves and repeated blocks, found by structure and not by names."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, islice
from operator import eq, itemgetter
from typing import TYPE_CHECKING, Literal

from roundoff.core.document import RunDocument
from roundoff.core.tensors import NodeInfo, Topology
from roundoff.messages.catalogue import bilingual, plain
from roundoff.pages.blocks import NetworkBox

if TYPE_CHECKING:
    from roundoff.diagnosis.result import LayerErrors

# What is computed together with the layer before it, where nobody else reads between them.
_FOLLOWERS = frozenset({
    "BatchNormalization", "Relu", "Clip", "LeakyRelu", "PRelu", "HardSwish", "HardSigmoid", "Elu", "Selu", "Bias",
})  # fmt: skip
_LEADERS = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "BatchNormalization", "InstanceNormalization"}
)
_MOVES = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Gather", "Expand",
    "Tile", "DepthToSpace", "SpaceToDepth", "Dropout", "Cast", "Shape",
})  # fmt: skip
# So many boxes fit a screen; of fewer nothing that is repeated is folded.
_FIT = 60
# Fewer boxes are no block; more blocks are no overview.
_SHORTEST, _MOST_BLOCKS = 3, 48


@dataclass(frozen=True, slots=True)
class FoldedBox:
    """Nodes that are drawn as one.

    Attributes:
        nodes: Their names in execution order.
        idiom: What they compute together; empty where they are a unit or a block.
        block: Number of the repeated block it is; 0 for none.
        inside: Number of the block that it belongs to, where that is open; 0 for none.
        parts: Boxes that a folded block is made of.
    """

    nodes: tuple[str, ...]
    idiom: str = ""
    block: int = 0
    inside: int = 0
    parts: tuple["FoldedBox", ...] = ()


@dataclass(frozen=True, slots=True)
class Folded:
    """A network in boxes.

    Attributes:
        boxes: In execution order.
        blocks: How many repeated blocks there are.
    """

    boxes: tuple[FoldedBox, ...]
    blocks: int = 0


def fold(
    network: Topology, *, units: Mapping[str, str] | None = None, badness: Mapping[str, float] | None = None
) -> Folded:
    """Fold a network.

    Args:
        network: Its nodes.
        units: The unit of each node, where that is known; else units are found by operations.
        badness: How bad nodes are; of the repeated blocks the one with the worst node is open.
    """
    network = _live(network)
    order = {node.name for node in network.nodes}
    groups = _NodeGroups(network.nodes)
    for name, nodes in network.idioms:
        groups.unite([each for each in nodes if each in order], name)
    for first, second in _pairs(network, units, groups):
        groups.unite([first, second])
    boxes = groups.boxes()
    if len(boxes) <= _FIT:
        return Folded(boxes)
    return _with_blocks(network, boxes, badness or {})


def _live(network: Topology) -> Topology:
    """The network without nodes that compute constants: they read nothing that it is fed, and are no layers."""
    known, kept = set(network.inputs), []
    for node in network.nodes:
        if known.intersection(node.inputs):
            known.update(node.outputs)
            kept.append(node)
    return replace(network, nodes=tuple(kept)) if kept else network


@dataclass
class _NodeGroups:
    """Nodes that are drawn together so far."""

    nodes: Sequence[NodeInfo]
    leader: dict[str, str] = field(default_factory=dict)
    idioms: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.leader = {node.name: node.name for node in self.nodes}

    def root(self, name: str) -> str:
        while self.leader[name] != name:
            self.leader[name] = self.leader[self.leader[name]]
            name = self.leader[name]
        return name

    def unite(self, names: Sequence[str], idiom: str = "") -> None:
        if not names:
            return
        roots = [self.root(name) for name in names]
        # What is a part of something else already stays there.
        if idiom and any(root in self.idioms for root in roots):
            return
        for other in roots[1:]:
            self.leader[other] = roots[0]
        if idiom:
            self.idioms[roots[0]] = idiom

    def boxes(self) -> tuple[FoldedBox, ...]:
        """All boxes, where the last of their nodes is computed."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            found.setdefault(self.root(node.name), []).append(node.name)
        last = {names[-1]: root for root, names in found.items()}
        ends = (last[node.name] for node in self.nodes if node.name in last)
        return tuple(FoldedBox(tuple(found[root]), self.idioms.get(root, "")) for root in ends)


def _pairs(network: Topology, units: Mapping[str, str] | None, groups: _NodeGroups) -> Iterable[tuple[str, str]]:
    """Nodes that follow each other within a unit, and moves that follow each other."""
    makers, readers = network.producers(), _readers(network)
    for node in network.nodes:
        before = makers.get(node.inputs[0]) if node.inputs else None
        if before is None or len(set(node.inputs)) > 1 or groups.root(node.name) in groups.idioms:
            continue
        if groups.root(before.name) in groups.idioms or any(
            len(readers.get(each, ())) > 1 for each in before.outputs
        ):
            continue
        if set(before.outputs) & set(network.outputs):
            continue
        moves = node.op_type in _MOVES and before.op_type in _MOVES
        if units is not None:
            together = node.name in units and units.get(before.name) == units[node.name]
        else:
            ahead = {before.op_type} | ({"Conv"} if before.op_type in _FOLLOWERS else set())
            together = node.op_type in _FOLLOWERS and bool(ahead & _LEADERS)
        if together or moves:
            yield before.name, node.name


def _readers(network: Topology) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in network.nodes:
        for tensor in dict.fromkeys(node.inputs):
            found.setdefault(tensor, []).append(node.name)
    return found


# Repeated blocks: the same operations several times in a row.


def _with_blocks(network: Topology, boxes: tuple[FoldedBox, ...], badness: Mapping[str, float]) -> Folded:
    operations = {node.name: node.op_type for node in network.nodes}
    known: dict[str, int] = {}
    marks = [known.setdefault(" ".join(operations[name] for name in box.nodes), len(known)) for box in boxes]
    crossing = _crossing(network, boxes)
    spans = sorted(_repeats(marks, 0, len(boxes), crossing))
    if not spans:
        return Folded(boxes)
    bad = [max((badness.get(name, -math.inf) for name in box.nodes), default=-math.inf) for box in boxes]
    worst = max(range(len(spans)), key=lambda at: max(bad[spans[at][0] : spans[at][1]]))
    found: list[FoldedBox] = []
    done = 0
    for number, (start, end) in enumerate(spans, start=1):
        found += boxes[done:start]
        inside = boxes[start:end]
        if number - 1 == worst:
            found += [FoldedBox(box.nodes, box.idiom, inside=number) for box in inside]
        else:
            names = tuple(name for box in inside for name in box.nodes)
            found.append(FoldedBox(names, block=number, parts=inside))
        done = end
    return Folded((*found, *boxes[done:]), len(spans))


def _crossing(network: Topology, boxes: Sequence[FoldedBox]) -> list[int]:
    """How many tensors are alive before each box."""
    place = {name: at for at, box in enumerate(boxes) for name in box.nodes}
    change = [0] * (len(boxes) + 2)
    readers = _readers(network)
    for node in network.nodes:
        for tensor in node.outputs:
            last = max((place[name] for name in readers.get(tensor, ())), default=-1)
            if last > place[node.name]:
                change[place[node.name] + 1] += 1
                change[last + 1] -= 1
    return list(accumulate(change))[: len(boxes) + 1]


def _repeats(marks: Sequence[int], start: int, end: int, crossing: Sequence[int]) -> list[tuple[int, int]]:
    """Where blocks begin and end: the repeat that covers most boxes, then likewise before and behind it."""
    length, best = end - start, (0, 0, 0, 0)
    part = marks[start:end]
    for period in range(_SHORTEST, length // 2 + 1):
        same = map(eq, part, islice(part, period, None))
        for alike, run in groupby(enumerate(same), key=itemgetter(1)):
            places = [at for at, _ in run] if alike else []
            if len(places) < period:
                continue
            first, last = places[0], places[-1] + 1
            count = (last - first) // period + 1
            # Of the periods that cover as much the shortest is the block.
            if count > 1 and count * period > best[0]:
                best = (count * period, period, start + first, start + last + period)
    covered, period, first, last = best
    if not covered:
        return []
    # Of the ways to cut the same repeat that where fewest tensors enter.
    cut = min(range(first, min(first + period, last - 2 * period + 1)), key=lambda at: (crossing[at], at))
    # Of very many several are one.
    period *= -(-(last - cut) // period // _MOST_BLOCKS)
    count = (last - cut) // period
    blocks = [(cut + at * period, cut + (at + 1) * period) for at in range(count)]
    stop = blocks[-1][1]
    return [*_repeats(marks, start, cut, crossing), *blocks, *_repeats(marks, stop, end, crossing)]


# The boxes of a run, each with its worst number, and with who is to blame.

# An error that is so much louder than what a unit adds itself is that of its inputs.
_INHERITED_DB = 6.0
# Better than this nothing is wrong that could be inherited.
_VISIBLE_DB = 20.0
_LONGEST_LABEL = 22
# As the field calls them; in a box there is little room.
_SHORT = {
    "BatchNormalization": "BN", "InstanceNormalization": "IN", "LayerNormalization": "LN",
    "GlobalAveragePool": "GAP", "GlobalMaxPool": "GMP", "ConvTranspose": "Deconv",
}  # fmt: skip


def network_boxes(
    document: RunDocument, values: Mapping[str, float | None], *, higher_is_better: bool
) -> tuple[NetworkBox, ...]:
    """What is drawn of the network of a run.

    Args:
        document: The run.
        values: The number of each node that has one.
        higher_is_better: Which way they are better.
    """
    network, found = document.network, document.diagnosis
    if network is None:
        return ()
    layers = None if found is None else found.layers
    rows = {} if layers is None else layers.rows_of(network)
    units = None
    if layers is not None:
        units = {name: layers.units[at] for name, at in rows.items()}
    elif document.layers is not None:
        units = {row.node: row.unit for row in document.layers.rows}
    sign = -1.0 if higher_is_better else 1.0
    worst = {name: sign * value for name, value in values.items() if value is not None}
    accused = set() if found is None else {name for each in found.accused for name in each.accused_nodes}
    if document.layers is not None:
        culprits = document.layers.verdict.culprits
        accused |= {name for each in culprits for name in (each.node, each.weighted) if name}
    told = set(() if found is None or layers is not None else found.victims)
    if document.comparison is not None:
        blamed, told = document.comparison.verdict, told | set(document.comparison.verdict.victims)
        writers = {name: node.name for node in network.nodes for name in node.outputs}
        accused |= {writers[name] for name in blamed.introduces if name in writers}
    victims = {node.name for node in network.nodes if told & {node.name, *node.outputs}}
    boxes = _BoxMaker(network, layers, rows, worst, accused, victims, sign)
    # Who is to blame is seen at first sight, however bad others are; of several the worst.
    ahead = 1.0 + max(worst.values(), default=0.0) - min(worst.values(), default=0.0)
    badness = {**worst, **{name: worst.get(name, 0.0) + ahead for name in accused}}
    return tuple(map(boxes.box, fold(network, units=units, badness=badness).boxes))


@dataclass
class _BoxMaker:
    """Makes boxes of folded nodes."""

    network: Topology
    layers: "LayerErrors | None"
    rows: Mapping[str, int]
    worst: Mapping[str, float]
    accused: Collection[str]
    victims: Collection[str]
    sign: float

    def box(self, each: FoldedBox) -> NetworkBox:
        bad = [self.worst[name] for name in each.nodes if name in self.worst]
        guilty = [name for name in each.nodes if name in self.accused]
        # The node to look at: the one to blame, else the one that has a number, else the first.
        first = next(
            (name for name in (*guilty, *each.nodes) if name in guilty or name in self.worst), each.nodes[0]
        )
        at = next((self.rows[name] for name in reversed(each.nodes) if name in self.rows), None)
        many = each.block or each.idiom
        label = plain(each.idiom or _end(first))
        if each.block:
            label = bilingual("network.block", number=each.block)
        shape = "" if self.layers is None or at is None or each.block else self.layers.shapes[at]
        return NetworkBox(
            label,
            (first, *(name for name in each.nodes if name != first)),
            f"{f'{len(each.nodes)} ops' if many else self._operations(each)} {_shape(shape)}".strip(),
            "" if self.layers is None or at is None else self.layers.dtypes[at],
            self.sign * max(bad) if bad else None,
            "culprit" if guilty else "block" if each.block else self._inherited(each, at),
            str(each.inside or ""),
            tuple(map(self.box, each.parts)),
        )

    def _operations(self, each: FoldedBox) -> str:
        known = {node.name: node.op_type for node in self.network.nodes}
        return "\u00b7".join(dict.fromkeys(_SHORT.get(known[name], known[name]) for name in each.nodes))

    def _inherited(self, each: FoldedBox, at: int | None) -> Literal["", "inherited"]:
        """Whether most of the error of a unit is that of its inputs."""
        if any(name in self.victims for name in each.nodes):
            return "inherited"
        if self.layers is None or at is None:
            return ""
        own, whole = self.layers.local_db[at], self.layers.accumulated_db[at]
        if own is None or whole is None or whole >= _VISIBLE_DB:
            return ""
        return "inherited" if own - whole >= _INHERITED_DB else ""


def _shape(text: str) -> str:
    return text.removeprefix("1x").replace("x", "\u00d7")


def _end(name: str) -> str:
    """The end of a long name with slashes."""
    return name if len(name) <= _LONGEST_LABEL else name.rstrip("/").rpartition("/")[2] or name
