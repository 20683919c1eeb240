"""The tensors of a device under the names, in the layouts and as the values of the float model."""

import contextlib
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roundoff.align.layout import find_layout, layouts_between, relabelled
from roundoff.align.matching import align
from roundoff.align.pairing import TensorPair
from roundoff.core.coverage import Unjudged
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, dequantize
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.diagnosis.devices.expectation import Golden
from roundoff.errors import BadInput, CannotAlign
from roundoff.messages.message import Message, as_message, english, message
from roundoff.studies.compare.pairs import SamplePairs, find_samples, laid_out, read_pair

__all__ = [
    "SURE",
    "DeviceView",
    "Fit",
    "KnownNames",
    "Readout",
    "read_out",
    "with_predicted",
]


SURE = 0.5
"""Pairs that are less certain are not used to accuse anybody."""

_FEWEST_FITTED = 8
# Axes of a tensor that has more than channels.
_MAP = 3
# So many tensors of one layout make it the usual one; one against so many that are as they should be is wrong.
_USUAL, _ONE_AGAINST = 3, 5


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
    """Scale and zero point of codes that were fitted to the float model.

    Attributes:
        scale: The scale.
        zero: The zero point.
        rest: What the fit leaves, relative to the spread of the values; as uncertain are these.
    """

    scale: float
    zero: float
    rest: float


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
    """

    reference: TensorSource
    device: TensorSource
    pairs: Mapping[str, TensorPair]
    samples: tuple[tuple[str, str], ...]
    quantizers: Mapping[str, Quantizer]
    fits: Mapping[str, Fit] = field(default_factory=dict)
    left_out: tuple[Unjudged, ...] = ()
    notes: tuple[Message, ...] = ()

    def read(self, name: str, sample: int) -> Array:
        """Values of a tensor, float32, in the layout of the float model.

        Raises:
            BadInput: It cannot be read in this sample.
        """
        pair = self.pairs[name]
        return self._values(name, laid_out(pair, self.device.read(pair.candidate, self.samples[sample][1])))

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
    pairing = align(reference, device, aliases=known.aliases, origins=known.origins, progress=progress)
    matched = find_samples(reference, device)
    by_name = _with_usual_layout({pair.reference: pair for pair in pairing.pairs}, (reference, device), matched)
    by_name |= _one_of_its_own(by_name, (reference, device), ends)
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
    if not kept:
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
    if fits:
        notes.append(message("diagnosis.note_unknown_scale", count=len(fits)))
    return Readout(reference, device, kept, matched.pairs, quantizers, fits, tuple(left_out), tuple(notes))


def _with_usual_layout(
    pairs: dict[str, TensorPair], sources: tuple[TensorSource, TensorSource], samples: SamplePairs
) -> dict[str, TensorPair]:
    """Tensors are stored as most others are: where the shape does not show it, and where values say otherwise.

    What then disagrees has a layout of its own, which is for the diagnosis to say.
    """
    names = Counter(pair.layout.name for pair in pairs.values() if pair.layout is not None)
    if not names:
        return pairs
    usual, count = names.most_common(1)[0]
    found = dict(pairs)
    for name, pair in pairs.items():
        with contextlib.suppress(BadInput):
            exact = sources[0].read(name, samples.pairs[0][0])
            stored = sources[1].read(pair.candidate, samples.pairs[0][1])
            layout = None
            if exact.shape == stored.shape:
                layout = find_layout(exact, stored)
                layout = layout if layout is not None and layout.name in names else None
            elif (pair.layout is None or pair.layout.name != usual) and count >= _USUAL:
                options = layouts_between(exact.shape, stored.shape)
                layout = next((each for each in options if each.name == usual), None)
            if layout is not None:
                found[name] = replace(pair, layout=layout)
    return found


def _one_of_its_own(
    pairs: Mapping[str, TensorPair], sources: tuple[TensorSource, TensorSource], ends: Collection[str]
) -> dict[str, TensorPair]:
    """The one tensor whose axes are in another order while all others are as they should be, taken as it lies."""
    ours, theirs = ({info.name: info.shape for info in source.tensors} for source in sources)
    odd = [
        pair for name, pair in pairs.items() if name not in ends and pair.layout is not None and pair.layout.axes
    ]
    if len(odd) != 1 or len(ours.get(odd[0].reference) or ()) != len(theirs.get(odd[0].candidate) or ()):
        return {}
    pair = odd[0]
    shape, stored = ours[pair.reference], theirs[pair.candidate]
    plain = [each for each in pairs.values() if each.layout is None and len(ours[each.reference] or ()) >= _MAP]
    if shape is None or stored is None or len(plain) < _ONE_AGAINST or math.prod(shape) != math.prod(stored):
        return {}
    return {pair.reference: replace(pair, layout=relabelled(shape, stored))}


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
    return Fit(scale, zero, rest)


# Pairing tensors behind a fault: no value fits the float model there, but it fits what its own inputs give.

_ROUNDS = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Tensors of one sample that are in memory; a `TensorSource`."""

    label: str
    samples: tuple[str, ...]
    arrays: Mapping[str, Array]
    ordered: bool = True

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo(name, array.dtype.name, array.shape) for name, array in self.arrays.items())

    def read(self, name: str, sample: str) -> Array:
        del sample
        return self.arrays[name]


@dataclass(frozen=True, slots=True, eq=False)
class _Some:
    """Some tensors of a source."""

    source: TensorSource
    names: frozenset[str]

    @property
    def label(self) -> str:
        return self.source.label

    @property
    def samples(self) -> tuple[str, ...]:
        return self.source.samples

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(info for info in self.source.tensors if info.name in self.names)

    @property
    def ordered(self) -> bool:
        return self.source.ordered

    def read(self, name: str, sample: str) -> Array:
        return self.source.read(name, sample)


def with_predicted(
    readout: Readout, golden: Golden, *, feed: Mapping[str, Array], tensors: Sequence[str]
) -> Readout:
    """Pair what is left by the values that the device's own tensors predict, round by round.

    Args:
        readout: What is paired so far.
        golden: Computes tensors from others.
        feed: Inputs of the first sample.
        tensors: Tensors of the float model that may be used, in execution order.
    """
    # Each round pairs tensors next to known ones; these then predict those behind them. Values of the float model
    # do not fit behind a fault, but what the device's own wrong inputs give does.
    for _ in range(_ROUNDS):
        taken = {pair.candidate for pair in readout.pairs.values()}
        left = [info for info in readout.device.tensors if info.name not in taken and not info.problem]
        sizes = {info.size for info in left}
        infos = {info.name: info for info in readout.reference.tensors}
        wanted = [name for name in tensors if name not in readout.pairs and infos[name].size in sizes]
        found = _paired(readout, golden, feed, wanted, frozenset(info.name for info in left)) if left else {}
        if not found:
            break
        together = {**readout.pairs, **found}
        readout = replace(readout, pairs={name: together[name] for name in tensors if name in together})
    return readout


def _paired(
    readout: Readout, golden: Golden, feed: Mapping[str, Array], wanted: Sequence[str], left: frozenset[str]
) -> dict[str, TensorPair]:
    if not wanted:
        return {}
    theirs = readout.samples[0][1]
    values = golden.compute_all(wanted, readout.view(0, feed))
    arrays = {name: values[name] for name in wanted}
    predicted = _Held("what the device's own tensors predict", (theirs,), arrays)
    try:
        pairing = align(predicted, _Some(readout.device, left))
    except CannotAlign:
        return {}
    sure = (pair for pair in pairing.pairs if pair.how == "value" and pair.confidence >= SURE)
    return {pair.reference: pair for pair in sure}
