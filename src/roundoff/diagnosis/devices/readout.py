"""The tensors of a device under the names, in the layouts and as the values of the float model."""

import contextlib
import copy
import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roundoff.align.alignment import align
from roundoff.align.layout import correlation, positions, relabelled, seen_through, take
from roundoff.align.pairing import Match, TensorPair
from roundoff.align.sequence import match_by_order
from roundoff.align.usual_layout import of_their_own, usual_layout
from roundoff.align.values import SampleSide
from roundoff.core.coverage import Unjudged
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, dequantize
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.diagnosis.devices.expectation import Golden, Span
from roundoff.errors import BadInput, CannotAlign
from roundoff.measure.classes import INDEX_TYPES, IndexCounts
from roundoff.messages.message import Message, as_message, english, message
from roundoff.studies.compare.pairs import find_samples, laid_out, read_pair
from roundoff.studies.compare.study import batch_note
from roundoff.tensors.stored import SomeTensors, runs_of, split_batch

SURE = 0.5
"""Pairs that are less certain are not used to accuse anybody."""

_FEWEST_FITTED = 8


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What the tensors of a device are called, by their names in the float model.

    Attributes:
        aliases: As the user says.
        origins: As the quantized model says; it need not be right.
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fit:
    """Scale and zero point of codes that were fitted to the float model, or to what other tensors predict.

    Attributes:
        scale: The scale.
        zero: The zero point.
        rest: What the fit leaves, relative to the spread of the values; as uncertain are these.
        known: Whether the float model's own values are on such a line: then nothing in front hides a gain.
    """

    scale: float
    zero: float
    rest: float
    known: bool


@dataclass(frozen=True, slots=True, eq=False)
class Readout:
    """What can be read of a device.

    Attributes:
        reference: The float model on the same samples.
        device: What the device wrote.
        pairs: For each tensor of the float model the one of the device, in execution order.
        samples: Names of each sample on both sides.
        quantizers: How tensors are coded, where that is known.
        fits: For codes whose scale is not known: scale and zero point that fit the float model best.
        left_out: What cannot be used, with the reason.
        notes: What was assumed.
        ends: Inputs and outputs of the network, which a device may hold in a layout of their own.
        indices: Outputs of the network that hold indices, such as those of ArgMax: they are equal or not.
        copies: Tensors of the device that are others in another form, and which.
        named: Tensors of the device whose names say what they are, though they cannot be used.
    """

    reference: TensorSource
    device: TensorSource
    pairs: Mapping[str, TensorPair]
    samples: tuple[tuple[str, str], ...]
    quantizers: Mapping[str, Quantizer]
    fits: Mapping[str, Fit] = field(default_factory=dict)
    left_out: tuple[Unjudged, ...] = ()
    notes: tuple[Message, ...] = ()
    ends: Collection[str] = ()
    indices: Mapping[str, TensorPair] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    named: frozenset[str] = frozenset()

    def _index_pairs(self, ends: Collection[str]) -> dict[str, TensorPair]:
        """Outputs of indices that are certain, and can be read in every sample."""
        dtypes = {info.name: info.dtype for info in self.reference.tensors}
        found = {}
        for name in ends:
            pair = self.pairs.get(name)
            if (
                pair is None
                or pair.how == "shape"
                or pair.confidence < SURE
                or dtypes.get(name) not in INDEX_TYPES
            ):
                continue
            with contextlib.suppress(BadInput):
                for sample in self.samples:
                    read_pair((self.reference, self.device), pair, sample)
                found[name] = pair
        return found

    def equal_indices(self, name: str, right: Callable[[int], Array] | None = None) -> IndexCounts:
        """Of a tensor of indices, how many are those of the float model, or of what else is right."""
        counts = IndexCounts()
        for at, sample in enumerate(self.samples):
            exact, found = read_pair((self.reference, self.device), self.indices[name], sample)
            counts = counts.add(exact if right is None else right(at), found)
        return counts

    def index_values(self, name: str, sample: int) -> Array:
        """The device's own indices."""
        return read_pair((self.reference, self.device), self.indices[name], self.samples[sample])[1]

    def read(self, name: str, sample: int) -> Array:
        """Values of a tensor, float32, in the layout of the float model.

        Raises:
            BadInput: It cannot be read in this sample.
        """
        pair = self.pairs[name]
        return self._values(name, laid_out(pair, self.device.read(pair.candidate, self.samples[sample][1])))

    def codes(self, name: str, sample: int) -> Array | None:
        """The codes of a tensor whose scale nobody tells, laid out as the float model's; None for others."""
        pair = self.pairs[name]
        found = laid_out(pair, self.device.read(pair.candidate, self.samples[sample][1]))
        return found if found.dtype.kind in "iu" and name not in self.quantizers else None

    def exact(self, name: str, sample: int) -> Array:
        """The same tensor in the float model."""
        return self.reference.read(name, self.samples[sample][0])

    def view(self, sample: int, feed: Mapping[str, Array]) -> "DeviceView":
        """All tensors of one sample, read when they are asked for."""
        return DeviceView(self, sample, feed)

    def _both(self, name: str, sample: int) -> tuple[Array, Array]:
        return read_pair((self.reference, self.device), self.pairs[name], self.samples[sample])

    def _values(self, name: str, found: Array) -> Array:
        if found.dtype.kind in "iu":
            quantizer = self.quantizers.get(name)
            if quantizer is not None and _fits_codes(found, quantizer):
                return dequantize(found, quantizer.params, quantizer.spec.axis)
            if name in self.fits:
                fit = self.fits[name]
                return ((found.astype(np.float64) - fit.zero) * fit.scale).astype(np.float32)
        return found.astype(np.float32)


class DeviceView(Mapping[str, Array]):
    """Tensors of a device in one sample; those that are not believed are replaced by what others compute.

    Args:
        readout: The device.
        sample: Which sample.
        feed: Inputs of the network, for those that the device did not write.
    """

    def __init__(self, readout: Readout, sample: int, feed: Mapping[str, Array]) -> None:
        self._readout, self._sample, self._feed = readout, sample, feed
        self.replaced: dict[str, Array] = {}
        self.without: frozenset[str] = frozenset()
        self._held: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name in self.without:
            raise KeyError(name)
        if name in self.replaced:
            return self.replaced[name]
        if name not in self._readout.pairs:
            return self._feed[name]
        if name not in self._held:
            self._held[name] = self._readout.read(name, self._sample)
        return self._held[name]

    def __contains__(self, name: object) -> bool:
        if name in self.without:
            return False
        return name in self._readout.pairs or name in self._feed or name in self.replaced

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys((*self._feed, *self._readout.pairs, *self.replaced))
        return (name for name in names if name not in self.without)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def but(self, replaced: Mapping[str, Array], without: frozenset[str] = frozenset()) -> "DeviceView":
        """The same with other values of some tensors, and without some."""
        other = DeviceView(self._readout, self._sample, self._feed)
        other.replaced = {**self.replaced, **replaced}
        other.without = self.without | without
        other._held = self._held
        return other


def read_out(  # noqa: PLR0913 - two sides, and what is known of them
    reference: TensorSource,
    device: TensorSource,
    *,
    tensors: Sequence[str],
    quantizers: Mapping[str, Quantizer],
    ends: Collection[str] = (),
    names: KnownNames | None = None,
    progress: Progress = SILENT,
) -> Readout:
    """Pair the tensors of a device with those of the float model.

    Args:
        reference: The float model on the samples that the device was given.
        device: What the device wrote.
        tensors: Tensors of the float model that may be used, in execution order.
        quantizers: How tensors are coded, where that is known.
        ends: Inputs and outputs of the network, which a device may hold in a layout of their own.
        names: Names of the device's tensors, where they are known.
        progress: Told how far it is.

    Raises:
        CannotAlign: Nothing could be paired.
    """
    known = names or KnownNames()
    device = split_batch(device, reference.tensors, reference.samples)
    pairing = align(
        reference, device, aliases=known.aliases, origins=known.origins, outputs=ends, progress=progress
    )
    matched = find_samples(reference, device)
    by_name = _as_dumped({pair.reference: pair for pair in pairing.pairs}, (reference, device), ends)
    usable = Readout(reference, device, by_name, matched.pairs, quantizers)
    kept: dict[str, TensorPair] = {}
    fits: dict[str, Fit] = {}
    left_out: list[Unjudged] = []
    for name in tensors:
        pair = by_name.get(name)
        if pair is None:
            continue
        why, fit = _usable(usable, pair)
        if why is not None:
            left_out.append(why)
            continue
        kept[name] = pair
        if fit is not None:
            fits[name] = fit
    indices = usable._index_pairs(ends)
    if not kept and not indices:
        reasons = "; ".join(f"{each.name}: {each.detail}" for each in left_out[:3])
        what = english(
            "No tensor of {label} could be used: {reasons}.",
            label=device.label,
            reasons=reasons or english("none is known"),
        )
        raise CannotAlign(
            what, fix=english("dump outputs of nodes under the names of the model, or give --aliases")
        )
    notes = [as_message(matched.note)] if matched.note else []
    notes += batch_note(device)
    if runs := runs_of(device):
        run, *others = runs
        notes.append(message("compare.run_taken", where=device.label, run=run, others=", ".join(others)))
    if fits:
        notes.append(message("diagnosis.note_unknown_scale", count=len(fits)))
    left_out = [each for each in left_out if each.name not in indices]
    return Readout(
        reference,
        device,
        kept,
        matched.pairs,
        quantizers,
        fits,
        tuple(left_out),
        tuple(notes),
        ends,
        indices,
        pairing.copies,
        frozenset(pair.candidate for name, pair in by_name.items() if name not in kept and pair.how in _NAMED),
    )


def _as_dumped(
    pairs: Mapping[str, TensorPair], sources: tuple[TensorSource, TensorSource], ends: Collection[str]
) -> dict[str, TensorPair]:
    """Tensors whose shapes fit the layout of the whole dump have that, whatever their values say.

    What then disagrees has a layout of its own, which is for the diagnosis to say.
    """
    ours, theirs = (source.tensors for source in sources)
    layout = usual_layout(ours, theirs, _matches((ours, theirs), pairs))
    shapes = {info.name: info.shape for info in ours}, {info.name: info.shape for info in theirs}
    found = dict(pairs)
    for name, pair in pairs.items() if layout.channels_last else ():
        left, right = shapes[0][name], shapes[1][pair.candidate]
        fit = layout.fit(left, right)
        if left != right and fit is not None and fit.prior == 0:
            found[name] = replace(pair, layout=fit.layout)
    for name in found.keys() & set(ends):
        moved = found[name].layout
        axes = moved and moved.axes
        # Channels go first or last; rows and columns that are exchanged are no way to store a picture.
        if axes and axes[:2] == (0, 1) and shapes[0][name] == shapes[1][found[name].candidate]:
            found[name] = replace(found[name], layout=None)
    for odd in of_their_own(found.values(), *shapes, ends):
        shape, stored = shapes[0][odd.reference], shapes[1][odd.candidate]
        found[odd.reference] = replace(odd, layout=None if shape == stored else relabelled(shape, stored))
    return found


def _usable(readout: Readout, pair: TensorPair) -> tuple[Unjudged | None, Fit | None]:
    """Why a pair cannot be used, or the scale and zero point that its codes need."""
    name = pair.reference
    if pair.how == "shape" or pair.confidence < SURE:
        return Unjudged(name, "unmatched", message("diagnosis.left_uncertain", other=pair.candidate)), None
    try:
        exact, found = readout._both(name, 0)
    except BadInput as error:
        return Unjudged(name, "unreadable", error.what.rstrip(".")), None
    if exact.dtype.kind != "f" or found.dtype.kind not in "fiu":
        return Unjudged(name, "not_numbers", message("diagnosis.left_not_real")), None
    if exact.shape != found.shape:
        detail = message("diagnosis.left_shape", shape=str(found.shape), expected=str(exact.shape))
        return Unjudged(name, "shape", detail), None
    quantizer = readout.quantizers.get(name)
    plain = found.dtype.kind == "f" or (quantizer is not None and _fits_codes(found, quantizer))
    fit = None if plain else _fitted(exact, found)
    codes = Unjudged(name, "not_numbers", message("diagnosis.left_codes"))
    return (None if plain or fit is not None else codes), fit


def _fits_codes(codes: Array, quantizer: Quantizer) -> bool:
    spec = quantizer.spec
    return codes.size == 0 or (int(codes.min()) >= spec.code_min and int(codes.max()) <= spec.code_max)


# What a line leaves of right values at most: those of few codes, and noise of what is in front.
_A_LINE = 0.2


def _fitted(exact: Array, codes: Array) -> Fit | None:
    """Scale and zero point of the line from codes to values; None when there is no such line."""
    x, y = codes.astype(np.float64).ravel(), exact.astype(np.float64).ravel()
    if x.size < _FEWEST_FITTED or x.std() == 0 or y.std() == 0:
        return None
    # Least squares of values on codes. The slope is the scale; the intercept is rounded to a whole zero point, as
    # codes have no other, and what is left says how far the scale can be trusted.
    scale = float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
    if scale <= 0:
        return None
    zero = float(np.rint(x.mean() - y.mean() / scale))
    rest = float(np.sqrt(np.square(y - (x - zero) * scale).mean()) / y.std())
    return Fit(scale, zero, rest, rest < _A_LINE)


# Pairing tensors behind a fault: no value fits the float model there, but it fits what its own inputs give.

_ROUNDS = 24
# Pairs that predictions start from; the others are decided again by what these predict.
_CERTAIN = 0.9
# Tensors that may be the wrong one, partners tried for each, and tensors behind it that must follow.
_FRONTIER, _MOST_PARTNERS, _FOLLOWERS = 6, 16, 5
# What follows leaves no more than this unexplained; less than the other tells no more.
_FOLLOWS, _EXACTLY = 0.1, 1e-3
# Nothing is wrong between pairs of which one leaves no more than this unexplained of the other.
_NOTHING_BETWEEN = 0.01
# How much more must follow from the right partner than from any other, and than without one (in e-folds).
_CLEARLY = 1.5
_LOOKED_AT = 2048
_FEWEST_VALUES = 8
# How sure a partner is from which those behind it follow.
_EXPLAINS = 0.9
_NAMED = ("alias", "origin", "name", "normalized")
# Names are taken at their word where as many tensors of the device have one of the model's; a few are coincidence.
_MOSTLY_NAMED = 0.5
# A pair is doubted when it leaves this much of what was predicted unexplained, and given up for a partner that
# leaves no more than that, and so many times less. Fewer values than these agree by chance.
_MISFIT, _FITTING, _BETTER, _TELLING = 0.02, 0.01, 10.0, 32
# Less than this is left unexplained of what is the same in half precision.
_SAME = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _Predicted:
    """The float model's tensors as the device's own tensors predict them; a `TensorSource`."""

    source: TensorSource
    samples: tuple[str, ...]
    tensors: tuple[TensorInfo, ...]
    arrays: Mapping[str, Array]
    ordered: bool = True

    @property
    def label(self) -> str:
        return self.source.label

    def read(self, name: str, sample: str) -> Array:
        return self.arrays[name] if name in self.arrays else self.source.read(name, sample)


def with_predicted(
    readout: Readout, golden: Golden, *, feed: Mapping[str, Array], tensors: Sequence[str]
) -> Readout:
    """Pair what is left, or is not certain, by the values that the device's own tensors predict, round by round.

    Args:
        readout: What is paired so far.
        golden: Computes tensors from others.
        feed: Inputs of the first sample.
        tensors: Tensors of the float model that may be used, in execution order.
    """
    # Each round pairs tensors next to known ones; these then predict those behind them. Values of the float model
    # do not fit behind a fault, but what the device's own wrong inputs give does. Where nothing follows any more,
    # the wrong tensor itself is next: its partner is the one from which those behind it follow.
    rounds = _Prediction(readout, golden, feed, tensors)
    for _ in range(_ROUNDS):
        rounds.give_up_misfits()
        if not rounds.left or not (rounds.pair_what_follows() or rounds.pair_what_explains()):
            break
    rounds.pair_the_rest()
    while rounds.move_behind():
        pass
    return rounds.result()


class _Prediction:
    """Pairs so far, and what they predict."""

    def __init__(
        self, readout: Readout, golden: Golden, feed: Mapping[str, Array], tensors: Sequence[str]
    ) -> None:
        self._readout, self._golden, self._feed = readout, golden, feed
        self._infos = {info.name: info for info in readout.reference.tensors}
        self._tensors = [name for name in tensors if name in self._infos]
        self._pairs = {
            name: pair for name, pair in readout.pairs.items() if pair.how in _NAMED or pair.confidence >= _CERTAIN
        }
        called = sum(pair.how in _NAMED for pair in readout.pairs.values()) + len(readout.named)
        mostly = called >= _MOSTLY_NAMED * len(readout.device.tensors)
        firm = _NAMED if mostly else ("alias", "origin")
        beside = readout.copies.keys() | (readout.named if mostly else frozenset())
        self._firm = {name for name, pair in self._pairs.items() if pair.how in firm or name in feed}
        self._open = {name: pair for name, pair in readout.pairs.items() if name not in self._pairs}
        everything = readout.reference.tensors, readout.device.tensors
        self._layout = usual_layout(*everything, _matches(everything, self._pairs))
        self._looks: dict[tuple[str, tuple[int, ...]], Array | None] = {}
        self._device = {
            info.name: info for info in readout.device.tensors if not info.problem and info.name not in beside
        }

    @property
    def left(self) -> list[str]:
        """Tensors of the device without a partner."""
        taken = {pair.candidate for pair in self._pairs.values()}
        return [name for name in self._device if name not in taken]

    def _wanted(self) -> list[str]:
        """Tensors of the float model without a partner that something left could be."""
        shapes = {self._device[name].shape for name in self.left}
        return [
            name
            for name in self._tensors
            if name not in self._pairs
            and any(self._layout.fit(self._infos[name].shape, shape) is not None for shape in shapes)
        ]

    def _view(self) -> DeviceView:
        return replace(self._readout, pairs=self._pairs).view(0, self._feed)

    def _predicted(self, wanted: Sequence[str]) -> Mapping[str, Array]:
        values = self._golden.compute_all(wanted, self._view()) if wanted else {}
        return {name: values[name] for name in wanted}

    def pair_what_follows(self) -> bool:
        """Pair tensors whose values are those that certain ones predict."""
        arrays = self._predicted(self._wanted())
        theirs = self._readout.samples[0][1]
        # Names have had their say: what is left under one of them was found to be another tensor.
        names = {f"predicted {at}": name for at, name in enumerate(arrays)}
        infos = tuple(replace(self._infos[name], name=given, node="") for given, name in names.items())
        values = {given: arrays[name] for given, name in names.items()}
        predicted = _Predicted(self._readout.reference, (theirs,), infos, values, ordered=False)
        try:
            pairing = align(predicted, SomeTensors(self._readout.device, frozenset(self.left)))
        except CannotAlign:
            return False
        found = {
            names[pair.reference]: replace(pair, reference=names[pair.reference], how="prediction")
            for pair in pairing.pairs
            if pair.how == "value" and pair.confidence >= SURE
        }
        # What follows in a layout of its own may have been handed on as it lies: that is no matter of reading it.
        sources = self._readout.reference, self._readout.device
        self._pairs = _as_dumped({**self._pairs, **found}, sources, self._readout.ends)
        return bool(found)

    def give_up_misfits(self) -> None:
        """Part pairs that do not follow from what they read, where one of the two follows elsewhere.

        A culprit does not follow either, but nothing else in the dump is what it should be, nor is it what another
        tensor behind it should be. What it should have read is no such other: so an activation that is left out
        stays one.
        """
        doubtful = [name for name in self._pairs if name not in self._firm]
        view = self._view()
        values = self._golden.compute_all(doubtful, view) if doubtful else {}
        misfits: dict[str, float] = {}
        for name in doubtful:
            rest = _rest(values[name], view[name])
            if rest is not None and rest > _MISFIT:
                misfits[name] = rest
        given_up = self._placed_elsewhere(misfits)
        if not given_up and len(misfits) > 1:
            # The first of them may be the culprit, which those behind it read.
            culprit = next(iter(misfits))
            given_up = self._placed_elsewhere({name: rest for name, rest in misfits.items() if name != culprit})
        self._pairs = {name: pair for name, pair in self._pairs.items() if name not in given_up}

    def _placed_elsewhere(self, misfits: Mapping[str, float]) -> set[str]:
        """Pairs of which one side follows elsewhere without all of these; each with what it leaves unexplained."""
        if not misfits:
            return set()
        held = {self._pairs[name].candidate: name for name in misfits}
        without = copy.copy(self)
        without._pairs = {name: pair for name, pair in self._pairs.items() if name not in misfits}
        given_up: set[str] = set()
        for name, wanted in without._predicted(without._wanted()).items():
            best = without._best_partners(wanted)
            if len(best) != 1:
                continue
            (partner, rest), *_ = best.items()
            owner = held.get(partner, "")
            if name in misfits and owner != name and _BETTER * rest < misfits[name]:
                given_up |= {name, owner} & misfits.keys()
            elif (
                owner and owner != name and name in self._golden.behind(owner) and _BETTER * rest < misfits[owner]
            ):
                given_up.add(owner)
        return given_up

    def _best_partners(self, wanted: Array) -> dict[str, float]:
        """Tensors of the device without a partner that are what was predicted, with what each leaves of it."""
        few = take(wanted, positions(wanted.size, _LOOKED_AT))
        if few is None or few.size < _TELLING:
            return {}
        looks = {each: look for each in self.left if (look := self._look(each, wanted.shape)) is not None}
        rests = {each: _unexplained(few, look) for each, look in looks.items()}
        found = {each: rest for each, rest in rests.items() if rest < _FITTING}
        # What only reshapes it holds the same values.
        alike = {each: rest for each, rest in found.items() if self._device[each].shape == wanted.shape}
        return alike or found

    def pair_what_explains(self) -> bool:
        """Pair the one tensor from which those behind it follow, though it does not follow itself."""
        inside, wanted = self._inside(), self._wanted()
        tried: list[tuple[float, str, str]] = []
        for name in [each for each in wanted if each not in inside][:_FRONTIER]:
            behind = self._golden.behind(name)
            followers = [each for each in wanted if each in behind][:_FOLLOWERS]
            if followers:
                usual = self._explained(self._golden.compute_all(followers, self._view()), followers, without="")
                tried += [
                    (explained, name, partner)
                    for partner in self._partners(name)
                    if (explained := self._explained_with(name, partner, followers)) > usual + _CLEARLY
                ]
        # Two partners that explain as much leave a tensor open. Others, with partners of their own, do not matter:
        # of those that explain most it is the first, from which these follow.
        most = max((explained for explained, _, _ in tried), default=0.0)
        clear = [
            (best, name, partner)
            for best, name, partner in tried
            if best + _CLEARLY > most
            and all(more + _CLEARLY <= best for more, each, other in tried if each == name and other != partner)
        ]
        if not clear:
            return False
        best, name, partner = clear[0]
        # A layer and the activation behind it explain as well as each other: the one of a kind that is dumped.
        alike = [each for explained, each, other in tried if other == partner and explained + _CLEARLY > best]
        name = max(alike, key=lambda each: (self._dumped_share(each), each == name))
        fit = self._layout.fit(self._infos[name].shape, self._device[partner].shape)
        layout = None if fit is None else fit.layout
        self._pairs[name] = TensorPair(name, partner, "prediction", _EXPLAINS, layout)
        return True

    def _inside(self) -> set[str]:
        """What lies between pairs that follow from each other: nothing there is wrong."""
        spans = {name: self._span(name) for name in self._pairs}
        ends = [name for name, span in spans.items() if span.hidden]
        view = self._view()
        values = self._golden.compute_all(ends, view) if ends else {}
        found: set[str] = set()
        for name in ends:
            rest = _rest(values[name], view[name])
            if rest is None or rest < _NOTHING_BETWEEN:
                found.update(spans[name].hidden)
        return found

    def _span(self, name: str) -> Span:
        return self._golden.span(name, self._pairs.keys()) if name not in self._feed else Span((), (), ())

    def _dumped_share(self, name: str) -> float:
        """Share of the tensors of the same operation that have a certain partner."""
        alike = [each for each in self._tensors if self._infos[each].op_type == self._infos[name].op_type]
        return sum(each in self._pairs for each in alike) / len(alike)

    def _partners(self, name: str) -> list[str]:
        """Tensors of the device that could be it, those found with doubt first."""
        shape = self._infos[name].shape
        left = [each for each in self.left if self._layout.fit(shape, self._device[each].shape) is not None]
        doubtful = self._open[name].candidate if name in self._open else ""
        # Tensors that hold the same explain the same: the first of them stands for all.
        different: dict[bytes, str] = {}
        for each in sorted(left, key=lambda each: each != doubtful):
            look = self._look(each, shape)
            different.setdefault(each.encode() if look is None else look.tobytes(), each)
        return list(different.values())[:_MOST_PARTNERS]

    def _explained_with(self, name: str, partner: str, followers: Sequence[str]) -> float:
        """How much of the tensors behind one follows when it has this partner."""
        fit = self._layout.fit(self._infos[name].shape, self._device[partner].shape)
        pair = TensorPair(name, partner, "prediction", _EXPLAINS, None if fit is None else fit.layout)
        try:
            values = replace(self._readout, pairs={**self._pairs, name: pair}).read(name, 0)
        except BadInput:
            return 0.0
        if values.shape != self._infos[name].shape or not np.isfinite(values).all():
            return 0.0
        view = self._view().but({name: values})
        return self._explained(self._golden.compute_all(followers, view), followers, without=partner)

    def _explained(self, values: Mapping[str, Array], followers: Sequence[str], *, without: str) -> float:
        """How much of these is among the tensors left: for each that is, the log of what it leaves unexplained."""
        total = 0.0
        left = [each for each in self.left if each != without]
        for name in followers:
            wanted = take(values[name], positions(values[name].size, _LOOKED_AT))
            if wanted is None or wanted.size < _FEWEST_VALUES:
                continue
            seen = [look for each in left if (look := self._look(each, values[name].shape)) is not None]
            best = max((correlation(wanted, look) for look in seen), default=0.0)
            rest = 1 - max(best, 0.0) ** 2
            total += max(0.0, math.log(_FOLLOWS) - math.log(rest + _EXACTLY))
        return total

    def _look(self, name: str, shape: tuple[int, ...]) -> Array | None:
        """A few elements of a tensor of the device, where they would be in the float model."""
        if (name, shape) not in self._looks:
            stored = self._device[name].shape
            fit = self._layout.fit(shape, stored)
            seen = None
            if fit is not None:
                with contextlib.suppress(BadInput):
                    array = self._readout.device.read(name, self._readout.samples[0][1])
                    if array.shape == stored:
                        seen = take(array, seen_through(fit.layout, shape, stored, count=_LOOKED_AT))
            self._looks[name, shape] = seen
        return self._looks[name, shape]

    def pair_the_rest(self) -> None:
        """Place what is left by order and shape, and what was found with doubt where it is still free."""
        for name in self._open.keys() & self._pairs.keys():
            del self._open[name]
        arrays = self._predicted([name for name in self._wanted() if self.left])
        theirs = self._readout.samples[0][1]
        infos = tuple(info for info in self._infos.values() if not info.problem)
        predicted = _Predicted(self._readout.reference, (self._readout.samples[0][0],), infos, arrays)
        sides = SampleSide(predicted, predicted.samples[0]), SampleSide(self._readout.device, theirs)
        known = _matches((infos, self._readout.device.tensors), self._pairs)
        placed = match_by_order(*sides, known=known, layout=self._layout, ordered=self._readout.device.ordered)
        found = [
            TensorPair(
                infos[each.reference].name,
                sides[1].tensors[each.candidate].name,
                each.how,
                each.confidence,
                each.layout,
            )
            for each in placed
        ]
        for pair in sorted((*found, *self._open.values()), key=lambda pair: -pair.confidence):
            free = pair.reference not in self._pairs and pair.candidate in self.left
            if free and pair.reference in self._tensors and pair.confidence >= SURE:
                self._pairs[pair.reference] = pair

    def move_behind(self) -> bool:
        """Give the result of an operation what looks like its input, where those behind it read that.

        A kernel that leaves an operation out, such as a bias or an activation, writes the operation's input; what
        the device went on with shows whose tensor it is.
        """
        spans = {name: self._span(name) for name in self._pairs}
        view = self._view()
        values = self._golden.compute_all([name for name, span in spans.items() if span.nodes], view)
        rests = {name: rest for name, made in values.items() if (rest := _rest(made, view[name])) is not None}
        usual = _BETTER * statistics.median(rests.values()) if rests else 0.0
        for name, rest in rests.items():
            if rest <= max(usual, _SAME):
                continue
            for before in spans[name].reads:
                behind = self._only_reader(before)
                if before in self._firm or before not in self._pairs or behind not in spans[name].hidden:
                    continue
                moved = self._view().but({behind: view[before]}, without=frozenset({before}))
                other = _rest(self._golden.compute(name, moved), view[name])
                if other is not None and _BETTER * other < rest:
                    pair = self._pairs.pop(before)
                    self._pairs[behind] = replace(pair, reference=behind, how="prediction", confidence=_EXPLAINS)
                    return True
        return False

    def _only_reader(self, name: str) -> str:
        """The one tensor that is computed from another, where it has the same shape; else nothing."""
        made = [out for node in self._golden.readers(name) for out in node.outputs if out]
        same = len(made) == 1 and made[0] in self._infos and self._infos[made[0]].shape == self._infos[name].shape
        return made[0] if same else ""

    def result(self) -> Readout:
        kept = {name: self._pairs[name] for name in self._infos if name in self._pairs}
        return self._fitted_again(replace(self._readout, pairs=kept))

    def _fitted_again(self, whole: Readout) -> Readout:
        """Scales of codes by what the device's own tensors predict, which holds behind a fault as well."""
        for name in whole.pairs if whole.fits else ():
            codes = None if name in self._feed else whole.codes(name, 0)
            if codes is None:
                continue
            fit = _fitted(self._golden.compute(name, whole.view(0, self._feed)), codes)
            if fit is not None and (name not in whole.fits or fit.rest < whole.fits[name].rest):
                whole = replace(
                    whole,
                    fits={**whole.fits, name: replace(fit, known=name in whole.fits and whole.fits[name].known)},
                )
        return whole


def _rest(wanted: Array, seen: Array) -> float | None:
    """What is left unexplained of a tensor, by a few of its elements; None where these cannot be compared."""
    at = positions(wanted.size, _LOOKED_AT)
    few = take(wanted, at), take(seen, at)
    return None if few[0] is None or few[1] is None else _unexplained(few[0], few[1])


def _unexplained(wanted: Array, seen: Array) -> float:
    """Part of what was seen that is not what was wanted; few values correlate by chance and must be the same."""
    if wanted.size >= _FEWEST_VALUES:
        return 1 - max(correlation(wanted, seen), 0.0) ** 2
    energy = float(np.square(seen).sum())
    return float(np.square(seen - wanted).sum()) / energy if energy else float(np.any(wanted))


def _matches(
    sides: tuple[Sequence[TensorInfo], Sequence[TensorInfo]], pairs: Mapping[str, TensorPair]
) -> list[Match]:
    """Pairs by place in both lists."""
    ours, theirs = ({info.name: place for place, info in enumerate(side)} for side in sides)
    return [
        Match(ours[name], theirs[pair.candidate], pair.how, pair.confidence, pair.layout)
        for name, pair in pairs.items()
        if name in ours and pair.candidate in theirs
    ]
