"""What is remembered of tensors while samples run: values, codes and channels; none grows with the samples."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, Protocol, TypeVar

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec, dequantize, quantize, representable_range
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import hidden_tensors
from roundoff.graph.nodes import reads
from roundoff.graph.quantized_model import QuantizedModel, fake_quantized
from roundoff.graph.readers.points import quantizer_names
from roundoff.graph.weights import Weights
from roundoff.measure.metrics import ratio_db
from roundoff.measure.statistics import CentralMoments, TensorStats
from roundoff.messages.message import english
from roundoff.quantize.calibration.observer import ChannelMismatch, Observation, Observer
from roundoff.run.variants import written_quantizers
from roundoff.studies.distribution.result import InspectedKind, QuantizerFacts, ValueSummary
from roundoff.studies.distribution.values import BinLayout, Spread, certain_peaks, counted_in, resolution, spreads


class _Recorder(Protocol):
    """Sees values of one sample after the other."""

    @property
    def add(self) -> Callable[..., None]:
        """Takes the values of the float network and, where they are looked at, those of the quantized one."""
        ...


_R = TypeVar("_R", bound=_Recorder)


class TensorRecord(Generic[_R]):
    """What is seen of one tensor over all samples.

    Args:
        tensor: Its name.
        record: What remembers its values.
        earlier: Quantizers that its values pass first, as those before the one that is looked at.
        tolerant: Whether channels that change from sample to sample only end this record, not the run.

    Attributes:
        others: What is looked at in the quantized network.
        shape: In the first sample.
        problem: Why the record ended; empty when it did not.
    """

    def __init__(
        self, tensor: str, record: _R, *, earlier: Sequence[Quantizer] = (), tolerant: bool = False
    ) -> None:
        self.record = record
        self.tensors: tuple[str, ...] = (tensor,)
        self.others: tuple[str, ...] = ()
        self.shape: tuple[int, ...] = ()
        self.problem = ""
        self._earlier, self._tolerant = earlier, tolerant

    def take(self, arrays: Sequence[Array]) -> None:
        """See the float values and, where there are two, those of the quantized network."""
        if self.problem:
            return
        values = np.asarray(arrays[0])
        for each in self._earlier:
            values = fake_quantized(values, each)
        self.shape = self.shape or values.shape
        try:
            self.record.add(values, *map(np.asarray, arrays[1:]))
        except ChannelMismatch as error:
            if not self._tolerant:
                raise
            self.problem = str(error)


# Values.

QUANTILES = (0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999)
# The middle of the values, for how much of the range they take.
_MIDDLE = (0.0005, 0.9995)
# Of the range, at each end.
_EDGE = 0.01
# Peaks are looked for between these quantiles; what is beyond is far less than a peak.
_BULK, _BULK_BINS = (0.005, 0.995), 254
# So few distinct values are taken one by one.
_FEW_VALUES = 256


class ValueRecord:
    """All that is remembered of values seen so far; its size does not depend on how many there were."""

    def __init__(self) -> None:
        self._observer = Observer()
        self._stats = TensorStats()
        self._moments = CentralMoments()
        self._spread: Spread | None = None

    def add(self, values: Array) -> None:
        """See values of any real type."""
        self._spread = None
        self._observer.add(values)
        self._stats = self._stats.merge(TensorStats.of(values))
        self._moments = self._moments.merge(CentralMoments.of(values))

    @property
    def spread(self) -> Spread:
        """How they are spread."""
        if self._spread is None:
            self._spread = next(iter(spreads(self._observer.observation())))
        return self._spread

    @property
    def resolution(self) -> float:
        """Width of the bins they are known by, as a share of the value; 0 when each is known."""
        return resolution(self._observer.observation())

    def summary(self, layout: BinLayout | None) -> ValueSummary:
        """Sum them up.

        Args:
            layout: Where the bins of the histogram are; None for no histogram.
        """
        stats, spread = self._stats, self.spread
        known = stats.finite > 0
        span = stats.maximum - stats.minimum if known else 0.0
        edge_share = central_range = None
        if span > 0:
            borders = np.array([stats.minimum + _EDGE * span, stats.maximum - _EDGE * span])
            below = spread.below(np.array([np.nextafter(borders[0], np.inf), borders[1]])) / spread.count
            edge_share = float(below[0] + 1 - below[1])
            first, last = spread.quantiles(np.array(_MIDDLE))
            central_range = float((last - first) / span)
        return ValueSummary(
            count=stats.count,
            nonfinite=stats.nans + stats.infs,
            zeros=stats.zeros,
            minimum=stats.minimum if known else None,
            maximum=stats.maximum if known else None,
            mean=stats.mean if known else None,
            std=stats.std if known else None,
            skewness=self._moments.skewness,
            excess_kurtosis=self._moments.excess_kurtosis,
            quantiles=self._quantiles() if known else {},
            edge_share=edge_share,
            central_range=central_range,
            bins=None if layout is None or not known else counted_in(spread, layout),
        )

    def _quantiles(self) -> dict[str, float]:
        found = self.spread.quantiles(np.array(QUANTILES))
        return {f"{share:g}": float(value) for share, value in zip(QUANTILES, found, strict=True)}

    def peaks(self) -> tuple[float, ...]:
        """Where the peaks are that are there for certain."""
        spread = self.spread
        if not spread.count:
            return ()
        if spread.low == spread.high:
            return (spread.low,)
        few = spread.distinct(_FEW_VALUES)
        if few is not None:
            values, counts = few
            return certain_peaks(_between(values).tolist(), counts.tolist())
        first, last = spread.quantiles(np.array(_BULK))
        edges = np.unique(np.concatenate([[spread.low], np.linspace(first, last, _BULK_BINS), [spread.high]]))
        below = spread.below(edges)
        below[0], below[-1] = 0, spread.count
        return certain_peaks(edges.tolist(), np.diff(below).tolist())


def _between(values: Array) -> Array:
    """Borders half-way between values; the gaps between the values of an image are no valleys."""
    middles = values[:-1] / 2 + values[1:] / 2
    return np.concatenate([[2 * values[0] - middles[0]], middles, [2 * values[-1] - middles[-1]]])


# Recording what a quantizer makes of the values it is fed with: codes, clipping, error.

# Values of one step: with all that is computed between, they stay in the cache.
_BLOCK_CODES = 1 << 16
# Codes of more bits are too many to have a counter each.
_MOST_COUNTED_BITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Values that share one scale.

    Attributes:
        values: float32, flat.
        codes: Theirs, where they are given.
        params: Of shape [].
        low: Below this a value is clipped.
        high: Above this.
    """

    values: Array
    codes: Array | None
    params: QuantParams
    low: float
    high: float


class CodeRecord:
    """What was seen of one quantizer; values that are not finite are left out."""

    def __init__(self, quantizer: Quantizer) -> None:
        self._quantizer = quantizer
        spec = quantizer.spec
        # Codes of one scale, whatever the quantizer has.
        self._spec = spec.along(None)
        self._counts = np.zeros(0 if spec.bits > _MOST_COUNTED_BITS else _levels(spec), np.int64)
        self._rare: dict[int, int] = {}
        self._count = self._below = self._above = self._nonzero = self._zeroed = 0
        self._signal = self._noise = 0.0

    def add(self, values: Array) -> None:
        """See values that the quantizer is fed with."""
        for part in self._parts(values):
            self._take(part)

    def facts(self) -> QuantizerFacts:
        """All of it in numbers."""
        quantizer, total = self._quantizer, max(1, self._count)
        low, high = representable_range(quantizer.params, quantizer.spec)
        points = np.unique(quantizer.params.zero_point)
        counts = self._counts[self._counts > 0] if self._counts.size else np.array(list(self._rare.values()))
        widest = int(np.argmax(high - low))
        return QuantizerFacts(
            name=quantizer.name,
            dtype=quantizer.spec.dtype,
            axis=quantizer.spec.axis if quantizer.params.scale.size > 1 else None,
            scales=(float(quantizer.params.scale.min()), float(quantizer.params.scale.max())),
            scale_ratio=float(quantizer.params.scale.max() / np.median(quantizer.params.scale)),
            zero_point=int(points[0]) if points.size == 1 else None,
            low=float(low.max()),
            high=float(high.min()),
            widest=(float(low.reshape(-1)[widest]), float(high.reshape(-1)[widest])),
            clipped_low=self._below / total,
            clipped_high=self._above / total,
            zeroed=self._zeroed / max(1, self._nonzero),
            levels_used=int(counts.size),
            levels=_levels(quantizer.spec),
            entropy_bits=_entropy_bits(counts),
            sqnr_db=self._sqnr_db(),
        )

    def _sqnr_db(self) -> float | None:
        return ratio_db(self._signal, self._noise) if self._count else None

    def _parts(self, values: Array) -> Iterator[_Part]:
        quantizer = self._quantizer
        params, axis, codes = quantizer.params, quantizer.spec.axis, quantizer.codes
        low, high = representable_range(params, quantizer.spec)
        half = params.scale.astype(np.float64) / 2
        # Within half a step of a code it is rounding, not clipping.
        limits = np.stack([low - half, high + half]).reshape(2, -1)
        if params.scale.size == 1:
            whole = QuantParams(params.scale.reshape(()), params.zero_point.reshape(()))
            yield from _blocks(
                values.reshape(-1), None if codes is None else codes.reshape(-1), whole, limits[:, 0]
            )
            return
        rows = np.moveaxis(values, axis or 0, 0)
        code_rows = None if codes is None else np.moveaxis(codes, axis or 0, 0)
        for row in range(len(rows)):
            own = QuantParams(params.scale[row], params.zero_point[row])
            some = None if code_rows is None else code_rows[row].reshape(-1)
            yield from _blocks(rows[row].reshape(-1), some, own, limits[:, row])

    def _take(self, part: _Part) -> None:
        values, codes = part.values, part.codes
        finite = np.isfinite(values)
        if not finite.all():
            values, codes = values[finite], None if codes is None else codes[finite]
        if not values.size:
            return
        if codes is None:
            codes = quantize(values, part.params, self._spec)
        self._count += values.size
        exact = values.astype(np.float64)
        self._below += int(np.count_nonzero(exact < part.low))
        self._above += int(np.count_nonzero(exact > part.high))
        restored = dequantize(codes, part.params)
        error = exact - restored
        self._nonzero += int(np.count_nonzero(exact))
        self._zeroed += int(np.count_nonzero((restored == 0) & (exact != 0)))
        self._signal += float(np.add.reduce(exact * exact))
        self._noise += float(np.add.reduce(error * error))
        if self._counts.size:
            places = codes.astype(np.intp) - self._spec.code_min
            self._counts += np.bincount(places, minlength=self._counts.size)
        else:
            for code, times in zip(*np.unique(codes, return_counts=True), strict=True):
                self._rare[int(code)] = self._rare.get(int(code), 0) + int(times)


def _blocks(values: Array, codes: Array | None, params: QuantParams, limits: Array) -> Iterator[_Part]:
    for start in range(0, values.size, _BLOCK_CODES):
        part = slice(start, start + _BLOCK_CODES)
        some = values[part].astype(np.float32, copy=False)
        yield _Part(some, None if codes is None else codes[part], params, float(limits[0]), float(limits[1]))


def _levels(spec: QuantSpec) -> int:
    return spec.code_max - spec.code_min + 1


def _entropy_bits(counts: Array) -> float:
    """Shannon's entropy of a code that occurs so often."""
    if not counts.size:
        return 0.0
    shares = counts / counts.sum()
    return float(max(0.0, -np.add.reduce(shares * np.log2(shares))))


# Recording the channels of one tensor.

CHANNEL_QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


class ChannelRecord:
    """All that is remembered of the channels of a tensor; its size does not depend on the number of samples.

    Args:
        axis: Along which channels are told apart.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._observer = Observer(axis)
        self._sums: Array | None = None
        self._counts: Array | None = None

    def add(self, values: Array) -> None:
        """See values of any real type.

        Raises:
            ChannelMismatch: They do not have the same channels as those before.
        """
        self._observer.add(values)
        axis = self._axis % values.ndim
        shape = math.prod(values.shape[:axis]), values.shape[axis], math.prod(values.shape[axis + 1 :])
        rows = values.reshape(shape)
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.add.reduce(rows, axis=(0, 2), dtype=np.float64)
        counts = np.full(shape[1], shape[0] * shape[2], np.int64)
        for row in np.flatnonzero(~np.isfinite(sums)):
            finite = rows[:, row][np.isfinite(rows[:, row])]
            sums[row], counts[row] = np.add.reduce(finite, dtype=np.float64), finite.size
        self._sums = sums if self._sums is None else self._sums + sums
        self._counts = counts if self._counts is None else self._counts + counts

    def observation(self) -> Observation:
        """What is known of the values."""
        return self._observer.observation()

    def means(self) -> Array:
        """Mean of each channel; 0 where there are no finite values."""
        if self._sums is None or self._counts is None:
            return np.zeros(0)
        return np.asarray(self._sums / np.maximum(self._counts, 1))

    def quantiles(self) -> Array:
        """Quantiles of each channel, of shape [channels, quantiles]; 0 where there are no finite values."""
        shares = np.array(CHANNEL_QUANTILES)
        return np.array([each.quantiles(shares) for each in spreads(self.observation())])

    @property
    def resolution(self) -> float:
        """Width of the bins quantiles are read from, as a share of the value; 0 when all values are known."""
        return resolution(self.observation())


# What the user wants to look at: nodes, tensors and quantizers, by name.


@dataclass(frozen=True, slots=True, eq=False)
class Inspected:
    """One tensor at one place.

    Attributes:
        name: Of the node that has this output alone, or of the tensor; of the quantizer where that has several.
        kind: What that is.
        tensor: The tensor.
        node: The node that computes it; the first that reads it where it is a constant; empty for an input.
        op_type: That node's operation.
        quantizer: For a quantizer itself; for a node the one by which its output is written; None without any.
    """

    name: str
    kind: InspectedKind
    tensor: str
    node: str
    op_type: str
    quantizer: Quantizer | None

    @property
    def is_constant(self) -> bool:
        """Whether its values are part of the model."""
        return self.kind in ("weight", "bias", "constant")


def find_inspected(
    quantized: QuantizedModel, patterns: Sequence[str], *, kinds: Iterable[InspectedKind] = ()
) -> tuple[Inspected, ...]:
    """Everything that one of the patterns names, in execution order.

    A pattern that is exactly a name means that: of a node (all its outputs), else of a tensor, else of a
    quantizer, which can also go by the name other tools give it. Otherwise ``*`` stands for any
    characters, ``?`` for one, and the pattern is held against nodes; where none matches against constants, tensors
    and quantizers.

    Args:
        quantized: The model.
        patterns: Names or globs.
        kinds: Look only among these; among all by default.

    Raises:
        BadInput: A pattern matches nothing.
    """
    index = _InspectedIndex(quantized, frozenset(kinds))
    chosen = {place for pattern in patterns for place in index.match(pattern)}
    return tuple(index.entries[place] for place in sorted(chosen))


class _InspectedIndex:
    """Everything there is to look at, and what it can be called."""

    def __init__(self, quantized: QuantizedModel, kinds: frozenset[InspectedKind]) -> None:
        self._quantized = quantized
        self._kinds = kinds
        graph = quantized.float_model.proto.graph
        constants = Weights(quantized.float_model).protos
        edges = Edges(quantized.float_model, quantized.quantizers)
        written = written_quantizers(quantized.float_model, edges)
        self._by_tensor: dict[str, list[Quantizer]] = {}
        for quantizer in quantized.quantizers:
            self._by_tensor.setdefault(quantizer.tensor, []).append(quantizer)
        self.entries: list[Inspected] = []
        for value in graph.input:
            if value.name not in constants:
                self._add(Inspected(value.name, "node", value.name, "", "", written.get(value.name)))
                self._add_quantizers(value.name, "", "")
        seen: set[str] = set()
        for node in graph.node:
            if node.op_type == "Constant":
                continue
            for name in reads(node):
                if name in constants and name not in seen:
                    seen.add(name)
                    self._add_constant(name, node.name, node.op_type)
            outputs = [name for name in node.output if name]
            for name in outputs:
                label = node.name if len(outputs) == 1 else name
                self._add(Inspected(label, "node", name, node.name, node.op_type, written.get(name)))
                self._add_quantizers(name, node.name, node.op_type)

    def match(self, pattern: str) -> list[int]:
        """Places of what a pattern names."""
        for labels in self._tiers():
            found = [place for label, place in labels if label == pattern]
            if found:
                return found
        nodes, *others = self._tiers()
        for labels in (nodes, [each for tier in others for each in tier]):
            found = [place for label, place in labels if fnmatchcase(label, pattern)]
            if found:
                return found
        raise self._unknown(pattern)

    def _tiers(self) -> list[list[tuple[str, int]]]:
        """Names and what they mean: of nodes, of tensors, of quantizers; what comes first counts first."""
        nodes, tensors, quantizers, loose = [], [], [], []
        for place, each in enumerate(self.entries):
            if each.kind == "node":
                nodes.append((each.node or each.tensor, place))
                tensors.append((each.tensor, place))
            elif each.kind == "activation" and each.quantizer is not None:
                quantizers.append((each.quantizer.name, place))
                # Who knows only the node calls the quantizer of its result after it.
                loose += [(alias, place) for alias in quantizer_names(each.node) if each.node]
            else:
                own = each.tensor if each.quantizer is None else each.quantizer.name
                tensors += [(label, place) for label in dict.fromkeys((each.tensor, own))]
            if each.kind != "node" and each.quantizer is not None:
                quantizers += [(alias, place) for alias in quantizer_names(each.tensor)]
        return [nodes, tensors, quantizers, loose]

    def _add(self, entry: Inspected) -> None:
        if not self._kinds or entry.kind in self._kinds:
            self.entries.append(entry)

    def _add_quantizers(self, tensor: str, node: str, op_type: str) -> None:
        for name, quantizer in self._named_quantizers(tensor):
            self._add(Inspected(name, "activation", tensor, node, op_type, quantizer))

    def _add_constant(self, tensor: str, node: str, op_type: str) -> None:
        quantizers = self._named_quantizers(tensor)
        for name, quantizer in quantizers:
            kind: InspectedKind = "bias" if quantizer.kind == "bias" else "weight"
            self._add(Inspected(name, kind, tensor, node, op_type, quantizer))
        if not quantizers:
            self._add(Inspected(tensor, "constant", tensor, node, op_type, None))

    def _named_quantizers(self, tensor: str) -> list[tuple[str, Quantizer]]:
        """The quantizers of a tensor, called after it where there is but one."""
        found = self._by_tensor.get(tensor, [])
        return [(tensor if len(found) == 1 else each.name, each) for each in found]

    def _unknown(self, pattern: str) -> BadInput:
        model = self._quantized.float_model
        what = english(
            "{pattern!r} names no node, tensor or quantizer of {path}", pattern=pattern, path=model.path
        )
        if self._kinds:
            kinds = " or ".join(sorted(self._kinds))
            others = _InspectedIndex(self._quantized, frozenset())
            if any(
                fnmatchcase(label, pattern) or label == pattern for tier in others._tiers() for label, _ in tier
            ):
                return BadInput(
                    english("{pattern!r} names nothing of the kind {kinds}.", pattern=pattern, kinds=kinds),
                    fix=english("leave --kind out, or change it"),
                )
            what += english(" of the kind {kinds}", kinds=kinds)
        holder = hidden_tensors(model).get(pattern)
        if holder is not None:
            fix = english("it is computed inside of node {holder!r} and cannot be seen; take that", holder=holder)
            return BadInput(english("{what}.", what=what), fix=fix)
        known = dict.fromkeys(
            label for each in self.entries for label in (each.node, each.tensor, each.name) if label
        )
        return BadInput(english("{what}.", what=what), fix=nearest(pattern.strip("*?"), known))
