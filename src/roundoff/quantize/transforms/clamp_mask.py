"""Attention masks of -3.4e38 become masks that change no bit of the result and leave the scores their levels.

A mask is added to scores in front of a Softmax. At 8 bits one scale covers both, so that a step over -3.4e38 is
1.3e36 and every score becomes the same. A masked key is nothing in float32 once it is so far below the largest
score of its row that its exponential is zero: a limit as low as that is exact, and is proven on the samples.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.draft import Draft, change_constants
from roundoff.graph.load import Model
from roundoff.graph.nodes import attribute, by_dtype, producers
from roundoff.graph.shapes import values
from roundoff.graph.transformers import MASK_LEVEL, Attention, ScoreOperand, find_parts
from roundoff.graph.weights import DerivedConstants
from roundoff.messages.message import Message, message
from roundoff.quantize.agreement import check_preparation
from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import StepOutcome, Transformed, TransformJob, transform
from roundoff.run.bench import Bench, spread
from roundoff.run.capture import Samples

CLAMP_MASK = "clamp_mask"
"""The step's name."""

_VANISHES = 104.0
"""exp(-103.98) is the last float32 above zero: what is further below the largest score of a row is nothing."""

_LEAST_PROBABILITY = 1 / 512
"""Half a step of an 8-bit probability: a score that gets less may saturate."""

# Rankings of rows need few samples; the proof takes all of these.
_SAMPLES = 32
_KEEP_ELEMENTS = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Identity", "Slice",
                            "Gather", "Tile", "Trilu", "Dropout"})  # fmt: skip


@dataclass(slots=True)
class ScoreRows:
    """What was seen of the rows of one attention.

    Attributes:
        lead: Most by which a score that is masked exceeds the largest one of its row that is not.
        least: Smallest of the largest scores of rows.
        most: Largest score that is not masked.
        keys: Most keys of a row.
        highest: Largest value of what each Add or Where gives and of what each Add adds, by node and by tensor.
        lowest: Smallest of what is added and is no mask.
        reached: Smallest value of each operand, masks included, by tensor.
        empty: Rows in which every key is masked.
        masked: Whether anything was masked.
        bottom: Smallest score that is not masked.
    """

    lead: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    keys: int = 1
    highest: dict[str, float] = field(default_factory=dict)
    lowest: float = 0.0
    reached: dict[str, float] = field(default_factory=dict)
    empty: int = 0
    masked: bool = False
    bottom: float = math.inf

    def add(self, added: Sequence[tuple[ScoreOperand, Array, Array, Array]]) -> None:
        """Look at one sample.

        Args:
            added: Of each operand: the scores that its node reads, what it adds to them or puts in their place,
                and where that is a mask.
        """
        total: Array = np.zeros(())
        hidden: Array = np.zeros((), bool)
        for at, (operand, scores, given, masks) in enumerate(added):
            total, hidden = _carried(total, hidden, scores) if at else (np.asarray(scores, np.float64), hidden)
            hidden = hidden | masks
            self.reached[operand.tensor] = min(
                self.reached.get(operand.tensor, 0.0), float(given.min(initial=0.0))
            )
            if not operand.selected:
                plain = np.where(masks, 0.0, given)
                total = total + plain
                self.lowest = min(self.lowest, float(plain.min()))
                self._reaches(operand.tensor, plain)
            self._reaches(operand.node, total)
        hidden = np.broadcast_to(hidden, total.shape)
        rows = np.where(hidden, -np.inf, total).max(axis=-1)
        seen = np.isfinite(rows)
        self.empty += int(np.count_nonzero(~seen))
        self.masked = self.masked or bool(hidden.any())
        self.keys = max(self.keys, total.shape[-1])
        if seen.any():
            self.lead = max(self.lead, float((total.max(axis=-1) - rows)[seen].max()))
            self.least = min(self.least, float(rows[seen].min()))
            self.most = max(self.most, float(rows[seen].max()))
            self.bottom = min(self.bottom, float(np.where(hidden, np.inf, total).min()))

    def _reaches(self, name: str, array: Array) -> None:
        self.highest[name] = max(self.highest.get(name, -math.inf), float(array.max()))

    @property
    def hides(self) -> float:
        """How far down a mask has to reach, so that a masked key gets less than half a step of a probability."""
        return math.log(_LEAST_PROBABILITY) - self.lead

    @property
    def low(self) -> float:
        """Scores below it weigh less than half a step of an 8-bit probability, in every row."""
        return self.least + math.log(_LEAST_PROBABILITY) - math.log(self.keys)

    @property
    def wasted(self) -> bool:
        """Whether most codes would go to scores that get no probability: a bias, or a mask of -100, is as low."""
        return self.bottom < self.low - (self.most - self.low)


def _carried(total: Array, hidden: Array, scores: Array) -> tuple[Array, Array]:
    """Scores without masks, and where masks are, as the next node reads them: reshaped, perhaps scaled."""
    seen = np.asarray(scores, np.float64)
    if total.size != seen.size:
        return seen, seen <= MASK_LEVEL
    hidden = np.broadcast_to(hidden, total.shape).reshape(seen.shape)
    return np.where(hidden, total.reshape(seen.shape), seen), hidden


@dataclass(frozen=True, slots=True)
class MaskLimits:
    """How low masks may be limited without changing a bit, and what scores need.

    Attributes:
        added: For masks that are added.
        selected: For values that stand in the place of scores.
        rows: What was seen, by the Softmax of each attention.
        samples: On how many samples.
    """

    added: float
    selected: float
    rows: Mapping[str, ScoreRows]
    samples: int

    @property
    def empty(self) -> int:
        """Rows in which every key is masked."""
        return sum(each.empty for each in self.rows.values())


def masked_attentions(model: Model) -> tuple[Attention, ...]:
    """The attentions that have a mask, or something fed from outside that may be one."""
    return tuple(
        part
        for part in find_parts(model).attentions
        if any(each.kind in ("mask", "unknown") for each in part.operands)
    )


def biased_attentions(model: Model) -> tuple[Attention, ...]:
    """The attentions that have anything added to scores, or selected instead: masks, biases, fed or computed."""
    parts = find_parts(model).attentions
    return tuple(part for part in parts if any(each.kind != "nothing" for each in part.operands))


@transform(CLAMP_MASK)
def clamp_mask(job: TransformJob) -> Transformed:
    """Limit attention masks as far as that changes no bit of the outputs, so that scores keep their levels."""
    model = job.model
    parts = biased_attentions(model)
    if not parts:
        return StepOutcome(model, (), ())
    limits = observe_rows(model, job.context.samples, parts, threads=job.context.threads)
    seen = [(part, limits.rows[part.softmax]) for part in parts if part.softmax in limits.rows]
    masked = [part for part, rows in seen if rows.masked]
    low = [part for part, rows in seen if rows.wasted and not rows.masked]
    notes, ranges = _low_scores(model, low, limits)
    if not masked:
        unused = [part for part, rows in seen if not rows.wasted and _is_idle(part, rows)]
        if unused:
            # Nothing was padded in any sample: what a mask does was not seen.
            notes = (*notes, message("quantize.mask_unused", count=len(unused)))
        return StepOutcome(model, (), notes, ranges)
    added = {each for part in masked for each in part.operands if not each.selected}
    kept = {**mask_ranges(model, added, limits), **score_ranges(model, masked, limits), **ranges}
    if limits.empty:
        note = message("quantize.mask_full_rows", count=limits.empty, samples=limits.samples)
        return StepOutcome(model, (), (note, *notes), kept)
    editor = _MaskEditor(model, masked)
    taken = editor.limit(limits)
    changed = editor.draft.finish()
    check = check_preparation(model, changed, job.context.samples, count=_SAMPLES, threads=job.context.threads)
    worst = max((each.max_abs_error for each in check.outputs), default=0.0)
    if not check.agrees or worst > 0:
        note = message("quantize.mask_not_equal", limit=f"{limits.added:.4g}", most=f"{worst:.2g}")
        return StepOutcome(model, (), (note, *notes), kept)
    return StepOutcome(changed, taken, (*_said(masked, limits, taken), *notes), kept)


def _low_scores(
    model: Model, parts: Sequence[Attention], limits: MaskLimits
) -> tuple[tuple[Message, ...], dict[str, tuple[float, float]]]:
    """Ranges of scores that reach far below what gets a probability without any mask, and what is said of them."""
    if not parts:
        return (), {}
    rows = [limits.rows[part.softmax] for part in parts]
    # Of the last sum alone: what an earlier one leaves out a later one might lift again.
    last = [replace(part, operands=part.operands[-1:]) for part in parts]
    lowest, low = (
        f"{min(values):.4g}" for values in ([each.bottom for each in rows], [each.low for each in rows])
    )
    return (message("quantize.low_scores", count=len(parts), lowest=lowest, low=low),), score_ranges(
        model, last, limits
    )


def _is_idle(part: Attention, rows: ScoreRows) -> bool:
    """Whether it has a mask, or is fed one, that masks nothing in any sample."""
    fed = [each for each in part.operands if each.kind == "unknown"]
    return any(each.kind == "mask" for each in part.operands) or any(not rows.reached[each.tensor] for each in fed)


def _said(masked: Sequence[Attention], limits: MaskLimits, taken: Sequence[Participation]) -> tuple[Message, ...]:
    if not taken:
        return ()
    limit = (
        limits.added if any(not each.selected for part in masked for each in part.operands) else limits.selected
    )
    return (message("quantize.mask_limited", count=len(masked), limit=f"{limit:.4g}"),)


@dataclass(frozen=True, slots=True)
class MaskNeeds:
    """What quantizers of masked scores, and of masks, need.

    Attributes:
        limits: What was seen, and how low masks may be limited.
        parts: The attentions in which something was masked.
        moved: Tensors that hold masks, moved at most, with what they are added as.
        sums: The range of masked scores, by tensor.
        ranges: The same, and that of masks.
    """

    limits: MaskLimits
    parts: tuple[Attention, ...]
    moved: Mapping[str, ScoreOperand]
    sums: Mapping[str, tuple[float, float]]
    ranges: Mapping[str, tuple[float, float]]

    @property
    def rows(self) -> list[ScoreRows]:
        """What was seen of the rows of each attention."""
        return [self.limits.rows[part.softmax] for part in self.parts]

    def missing(self, tensor: str, low: float, high: float) -> bool:
        """Whether a quantizer with these ends turns masked keys into others: they saturate where they count."""
        if tensor in self.moved:
            hides = min((each.hides for each in self.rows), default=0.0)
            return (-high if self.moved[tensor].subtracted else low) > hides
        # As many keys as there are may share what is left; any one of them counts from half a step on.
        return tensor in self.sums and low > self.sums[tensor][0] + math.log(max(each.keys for each in self.rows))


def mask_needs(model: Model, samples: Samples, tensors: Container[str]) -> MaskNeeds | None:
    """What quantizers of some tensors need where these are masked scores or masks; None where none is.

    Args:
        model: The float network.
        samples: Some of them are run, if there is anything to look at.
        tensors: Those with a quantizer.

    Raises:
        BadInput: The samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    parts = masked_attentions(model)
    results = {node.name: node.output[0] for node in model.proto.graph.node}
    added = [each for part in parts for each in part.operands]
    if not any(each.tensor in tensors or results[each.node] in tensors for each in added):
        return None
    limits = observe_rows(model, samples, parts)
    parts = tuple(part for part in parts if part.softmax in limits.rows and limits.rows[part.softmax].masked)
    added = [each for part in parts for each in part.operands if not each.selected]
    # A mask is moved on its way: what holds the same values has the same range.
    moved = {name: (each, ends) for each in added for name, ends in mask_ranges(model, [each], limits).items()}
    sums = score_ranges(model, parts, limits)
    ranges = {**{name: ends for name, (_, ends) in moved.items()}, **sums}
    return MaskNeeds(limits, parts, {name: each for name, (each, _) in moved.items()}, sums, ranges)


def score_ranges(model: Model, masked: Sequence[Attention], limits: MaskLimits) -> dict[str, tuple[float, float]]:
    """The range of masked scores: from where a probability is nothing to the largest; a mask saturates."""
    results = {node.name: node.output[0] for node in model.proto.graph.node}
    found = {}
    for part in masked:
        seen = limits.rows[part.softmax]
        low = seen.low
        for each in reversed(part.operands):
            found[results[each.node]] = (low, seen.highest[each.node])
            # What is added later may lift a score again.
            low -= max(0.0, seen.highest.get(each.tensor, 0.0))
    return found


def mask_ranges(
    model: Model, operands: Iterable[ScoreOperand], limits: MaskLimits
) -> dict[str, tuple[float, float]]:
    """The range of masks, and of what they are moved from: where nothing limits them their quantizer saturates."""
    makers = producers(model.proto.graph.node)
    found = {}
    for each in operands:
        rows = [seen for seen in limits.rows.values() if each.tensor in seen.highest]
        if min((seen.reached[each.tensor] for seen in rows), default=0.0) > MASK_LEVEL:
            continue
        high = max((seen.highest[each.tensor] for seen in rows), default=0.0)
        tensor, node = each.tensor, makers.get(each.tensor)
        ends = (-high, -limits.added) if each.subtracted else (limits.added, high)
        found[tensor] = ends
        while node is not None and node.op_type in _KEEP_ELEMENTS:
            tensor, node = node.input[0], makers.get(node.input[0])
            found[tensor] = ends
    return found


def observe_rows(
    model: Model, samples: Samples, parts: Sequence[Attention], *, threads: int | None = None
) -> MaskLimits:
    """Run the float network and look at the rows of scores.

    Args:
        model: The float network.
        samples: Some of them are run.
        parts: Its attentions, with masks or without.
        threads: Threads to use; all cores by default.

    Raises:
        BadInput: The samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    reader = _ScoreReader(model, parts)
    bench = Bench(model, samples, threads=threads)
    network = bench.open(tensors=reader.tensors) if reader.tensors else None
    chosen = spread(len(samples.names), _SAMPLES)
    rows = {part.softmax: ScoreRows() for part in reader.parts}
    for index in chosen if network is not None else ():
        feed = bench.feed(index)
        computed = {**feed, **network.run(feed, sample=samples.names[index])} if network is not None else {}
        for part in reader.parts:
            rows[part.softmax].add(reader.scores(part, computed))
    lead = max((each.lead for each in rows.values()), default=0.0)
    lowest = min((each.lowest for each in rows.values()), default=0.0)
    # A lead twice as large as any that was seen is a reserve for other samples.
    added = min(-math.ceil(_VANISHES + 2 * lead), math.floor(lowest))
    least = min((each.least for each in rows.values()), default=0.0)
    most = max((each.most for each in rows.values()), default=0.0)
    selected = math.floor(least - _VANISHES - max(0.0, most - least)) if math.isfinite(least) else -math.inf
    return MaskLimits(float(added), float(selected), rows, len(chosen))


class _ScoreReader:
    """Reads scores and what is added to them from what a run computed, constants from the model."""

    def __init__(self, model: Model, parts: Sequence[Attention]) -> None:
        self._nodes = {node.name: node for node in model.proto.graph.node}
        self._constants = DerivedConstants(model)
        inputs = {value.name for value in model.proto.graph.input}
        # Keys along another axis than the last are not met in exports; their rows would not be rows here.
        self.parts = [part for part in parts if part.axis in (-1, self._rank(model, part.masked) - 1)]
        wanted = [name for part in self.parts for name in self._read(part)]
        self.tensors = [
            name for name in dict.fromkeys(wanted) if name not in self._constants and name not in inputs
        ]

    @staticmethod
    def _rank(model: Model, tensor: str) -> int:
        shape = next((each.shape for each in values(model) if each.name == tensor), None)
        return 0 if shape is None else len(shape)

    def _read(self, part: Attention) -> list[str]:
        if not part.operands:
            return [part.masked]
        places = [(0, each.score_place) if each.selected else (each.score_place,) for each in part.operands]
        read = zip(part.operands, places, strict=True)
        return [*(each.tensor for each in part.operands)] + [
            self._nodes[each.node].input[at] for each, some in read for at in some
        ]

    def _value(self, tensor: str, computed: Mapping[str, Array]) -> Array:
        return computed[tensor] if tensor in computed else self._constants.value(tensor)

    def scores(
        self, part: Attention, computed: Mapping[str, Array]
    ) -> list[tuple[ScoreOperand, Array, Array, Array]]:
        """Of one sample and each operand: scores that its node reads, what it adds, and where that is a mask."""
        found = []
        for operand in part.operands or (ScoreOperand("", 0, part.masked, selected=True, kind="nothing"),):
            node = self._nodes.get(operand.node)
            given = np.asarray(self._value(operand.tensor, computed), np.float64)
            if node is None:
                found.append((operand, given, given, np.zeros((), bool)))
                continue
            given = -given if operand.subtracted else given
            masks = given <= MASK_LEVEL
            if operand.selected:
                chosen = np.asarray(self._value(node.input[0], computed), bool)
                masks = masks & (chosen if operand.place == 1 else ~chosen)
            found.append((operand, self._value(node.input[operand.score_place], computed), given, masks))
        return found


class _MaskEditor:
    """Limits masks in a draft: in their constants where these alone make them, else by a Max."""

    def __init__(self, model: Model, parts: Sequence[Attention]) -> None:
        self.draft = Draft(model)
        self._operands = {
            (each.node, each.place): each
            for part in parts
            for each in part.operands
            if each.kind in ("mask", "unknown")
        }
        self._inputs = {value.name for value in model.proto.graph.input}
        self._own = {name for name, _ in self._operands}
        cone, waiting = set[str](), [each.tensor for each in self._operands.values()]
        while waiting:
            maker = self.draft.producer(waiting.pop())
            if maker is not None and maker.name not in cone:
                cone.add(maker.name)
                waiting += [name for name in maker.input if name]
        # From the masks up: layers may move one mask each for itself.
        for node in reversed(list(self.draft.nodes.values())):
            if node.name in cone and all(map(self._is_private, filter(None, node.output))):
                self._own.add(node.name)
        self._elements = {each.name: each.element.dtype for each in values(model) if each.element is not None}
        self._limited: dict[str, str] = {}

    def limit(self, limits: MaskLimits) -> tuple[Participation, ...]:
        """Limit every mask; who took part."""
        taken = []
        reached = [each.reached for each in limits.rows.values()]
        for (name, place), operand in self._operands.items():
            limit = limits.selected if operand.selected else limits.added
            node, tensor = self.draft.nodes[name], operand.tensor
            sign = -1.0 if operand.subtracted else 1.0
            seen = any(found.get(tensor, 0.0) < limit for found in reached)
            if seen or self._may_be_lower(node.input[place], limit, sign):
                self._edge(node, place, limit, sign)
                text = message("quantize.mask_limit", limit=f"{sign * limit:.4g}")
                taken.append(Participation(name, "mask", text))
        return tuple(taken)

    def _may_be_lower(self, tensor: str, limit: float, sign: float) -> bool:
        """Whether a constant on the path of a tensor is lower than the limit, or it is fed from outside."""
        waiting, seen = [tensor], set[str]()
        while waiting:
            name = waiting.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            if name in self.draft.constants:
                if self._least(self.draft.constants.value(name), sign) < limit:
                    return True
                continue
            if name in self._inputs and self._elements.get(name, "").startswith(("float", "bfloat")):
                return True
            maker = self.draft.producer(name)
            if maker is not None:
                made = attribute(maker, "value") if maker.op_type == "ConstantOfShape" else None
                if made is not None and self._least(_array(made), sign) < limit:
                    return True
                waiting += maker.input
        return False

    @staticmethod
    def _least(held: Array, sign: float) -> float:
        return float((sign * held).min(initial=0.0)) if held.dtype.kind == "f" else 0.0

    def _edge(self, node: Any, place: int, limit: float, sign: float) -> None:
        """Limit what a node reads at one of its inputs, times a sign."""
        tensor = node.input[place]
        if tensor in self.draft.constants:
            held = self.draft.constants.value(tensor)
            if self._least(held, sign) < limit:
                change_constants(
                    self.draft, [(node, place, sign * np.maximum(sign * held, limit))], dtype_of=tensor
                )
            return
        maker = self.draft.producer(tensor)
        if maker is not None and maker.name in self._limited.values():
            return
        places = self._places(maker) if maker is not None and self._is_private(tensor) else ()
        lower = [at for at in places if self._may_be_lower(maker.input[at], limit, sign)] if maker else []
        if maker is None or not lower:
            # Nothing on its path can be limited in its stead.
            self._insert(node, place, limit, sign)
            return
        for at in lower:
            self._edge(maker, at, limit, sign)

    def _is_private(self, tensor: str) -> bool:
        """Whether nothing but masks is made of a tensor; shapes do not count."""
        others = [each for each in self.draft.readers(tensor) if each.op_type != "Shape"]
        return tensor not in self.draft.outputs.values() and all(each.name in self._own for each in others)

    def _places(self, maker: Any) -> tuple[int, ...]:
        """Inputs of a node whose limit is a limit of its result."""
        if maker.op_type in _KEEP_ELEMENTS:
            return (0,)
        if maker.op_type == "Cast":
            return (0,) if self._elements.get(maker.input[0], "").startswith("float") else ()
        if maker.op_type == "Where":
            return (1, 2)
        if maker.op_type in ("Add", "Concat"):
            return tuple(range(len(maker.input)))
        if maker.op_type == "Mul":
            # One where it masks and zero elsewhere, times a constant.
            return next(((at,) for at in (0, 1) if maker.input[at] in self.draft.constants), ())
        return ()

    def _insert(self, node: Any, place: int, limit: float, sign: float) -> None:
        tensor = node.input[place]
        if tensor not in self._limited:
            draft = self.draft
            element = by_dtype(self._elements.get(tensor, "float32"))
            dtype = np.float32 if element is None else np.dtype(element.widened)
            constant = draft.add_constant(np.asarray(sign * limit, dtype), f"{tensor}_limit")
            self._limited[tensor] = self._add_node("Max" if sign > 0 else "Min", [tensor, constant], tensor)
        new = self.draft.nodes[self._limited[tensor]]
        self.draft.set_input(node, place, new.output[0])

    def _add_node(self, op_type: str, inputs: list[str], tensor: str) -> str:
        """Put a node behind the one that computes a tensor; its name."""
        from onnx.helper import make_node

        draft = self.draft
        name, output = draft.free_node(f"{tensor}_limit"), draft.free_tensor(f"{tensor}_limited")
        made = make_node(op_type, inputs, [output], name=name)
        maker = draft.producer(tensor)
        nodes = list(draft.nodes.values())
        at = 0 if maker is None else nodes.index(maker) + 1
        draft.replace([*nodes[:at], made, *nodes[at:]])
        return name


def _array(tensor: Any) -> Array:
    from onnx.numpy_helper import to_array

    return np.asarray(to_array(tensor))
