"""Searching for the transformation between two sets of pictures, plain ones first."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.tokens import log_probabilities
from roundoff.messages.message import Message, joined, message, verbatim
from roundoff.messages.numbers import share_text
from roundoff.studies.check_io.candidates import (
    FORWARD,
    Candidate,
    Claim,
    ClaimCriteria,
    LinearFit,
    PixelPairs,
    best_order,
    better,
    sample_pixels,
    verify,
)
from roundoff.studies.check_io.layouts import (
    ArrayReading,
    Box,
    Reinterpretation,
    content_box,
    is_whole,
    picture_of,
    readings,
    storages,
)
from roundoff.studies.check_io.normalization import channel_numbers
from roundoff.studies.check_io.result import Correction, IoChange

_LOOKED_AT = 4  # samples in which ways to read are told apart
_PIXELS = 3000  # of each of them
_FEWEST_PIXELS = 12
# Ways that leave more of the variance than this are no candidates, nor those that leave so many times the best.
_LOOSE, _TIED, _ROUNDING = 0.05, 3.0, 1e-10
_MOST_VERIFIED = 6
_MOST_SHIFT = 6
_MOST_CHANGES = 4
# Where codes of 8 and 16 bits end.
_ENDS = (-128, -127, 0, 127, 255, -32768, 32767, 65535)
# Where so many of other values are the same at an end, they were cut off there; what the other side has may
# be short of the end by so many times what is left elsewhere, and by more at so many of them.
_PILED, _FAR, _MOST_WRONG = 1e-3, 3.0, 0.01
_AS_IT_IS = Reinterpretation((), lambda array: array)

_Layouts = Sequence[tuple[str, Callable[[Array], Array]]]
Cut = Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True, slots=True)
class PictureSearch:
    """Two sets of pictures, paired.

    Attributes:
        training: Training's arrays.
        deployed: The deployed side's.
        judging: By what claims are judged.
    """

    training: Sequence[Array]
    deployed: Sequence[Array]
    judging: ClaimCriteria

    def claims(self) -> Iterator[Claim]:
        """Verified claims, stage by stage; those of one stage are sorted, the best first."""
        # From cheap and usual to dear and rare. Within a stage all readings are ranked by what the best line
        # leaves on a few thousand pixels; only those tied with the best are verified on every value.
        layouts = picture_of(self.training[0].shape)
        explained = False
        for storage in (_AS_IT_IS, *storages(self.training[0], self.deployed[0])):
            for claim in self._verified(self._read(layouts, storage)):
                explained |= claim.accepted
                yield claim
        if explained:
            return  # what follows takes longer, and holds for what nothing else explains
        yield from self._unsaturated(layouts)
        yield from self._boxed(layouts)
        yield from self._verified(self._shifted(layouts))

    def tried(self) -> tuple[str, ...]:
        """What is looked for, by the keys of its words; nothing where the sizes allow no way to read."""
        training, deployed = self.training[0], self.deployed[0]
        layouts = picture_of(training.shape)
        read = next(self._read(layouts, _AS_IT_IS), None) is not None
        stored = any(True for _ in storages(training, deployed))
        return (*(("order", "range") if read else ()), *(("types",) if stored else ()))

    def _verified(self, candidates: Iterator[Candidate]) -> Iterator[Claim]:
        found = [
            candidate
            for candidate in candidates
            if candidate.fit.unexplained <= _LOOSE and candidate.count <= _MOST_CHANGES
        ]
        if not found:
            return
        best = min(candidate.fit.unexplained for candidate in found)
        tied = [candidate for candidate in found if candidate.fit.unexplained <= _TIED * best + _ROUNDING]
        tied.sort(key=lambda candidate: candidate.count)
        claims = []
        for candidate in tied[:_MOST_VERIFIED]:
            claim = verify(candidate, self.judging)
            if claim is not None:
                claims.append(claim)
        yield from sorted(claims, key=better)

    def _read(self, layouts: _Layouts, storage: Reinterpretation) -> Iterator[Candidate]:
        """All layouts and turns of the values as `storage` reads them."""
        try:
            stored = storage.read(self.deployed[0])
        except ValueError:
            return
        for layout, view in layouts:
            picture = view(self.training[0])
            size = (picture.shape[0], picture.shape[1], picture.shape[2])
            for reading in readings(layout, size, stored.shape):
                candidate = self._candidate(
                    (*storage.changes, *reading.changes),
                    view,
                    _composed(storage, reading),
                    _known_rows if storage.partial else _whole,
                )
                if candidate is not None:
                    yield candidate

    def _unsaturated(self, layouts: _Layouts) -> Iterator[Claim]:
        """Values of which some were cut off at the ends of their range: those are left out."""
        low, high = (float(end([end(each) for each in self.deployed])) for end in (np.min, np.max))
        codes = low in _ENDS and high in _ENDS and all(map(is_whole, self.deployed))
        left: list[tuple[tuple[IoChange, ...], _Saturated]] = []
        candidates: list[Candidate] = []
        for candidate in self._read(layouts, _AS_IT_IS):
            ends = _Saturated.of(candidate.pairs, piled=not codes)
            if ends.share and (without := ends.leave_out(candidate)) is not None:
                left.append((candidate.changes, ends))
                candidates.append(without)
        for claim in self._verified(iter(candidates)):
            channels = claim.linear.matrix.shape[1]
            fitting = (
                each
                for changes, each in left
                if claim.changes[: len(changes)] == changes and len(each.low) == channels
            )
            known = next(fitting, None)
            if known is None:
                continue
            if codes or known.follow(claim.linear, self.judging.tolerance + _FAR * claim.rms):
                told = {"low": f"{low:g}", "high": f"{high:g}"}
                note = message("check_io.cut_left_out", share=share_text(known.share, 1), **told)
                yield replace(claim, exact=False, notes=(*claim.notes, note))

    def _candidate(
        self,
        changes: tuple[IoChange, ...],
        view: Callable[[Array], Array],
        read: Callable[[Array], Array],
        cut: Cut,
    ) -> Candidate | None:
        first, second = self._looked_at(view, read, cut)
        if len(first) < _FEWEST_PIXELS:
            return None
        fit = best_order(first, second)
        if fit is None:
            return None

        def pairs() -> PixelPairs:
            for training, deployed in zip(self.training, self.deployed, strict=True):
                one, other = cut(view(training), read(deployed))
                yield one.reshape(-1, one.shape[2]), other.reshape(-1, other.shape[2])

        return Candidate(changes, pairs, fit)

    def _looked_at(
        self, view: Callable[[Array], Array], read: Callable[[Array], Array], cut: Cut
    ) -> tuple[Array, Array]:
        """Some pixels of some samples; none when sizes do not match."""
        empty = np.zeros((0, 1)), np.zeros((0, 1))
        firsts, seconds = [], []
        for training, deployed in list(zip(self.training, self.deployed, strict=True))[:_LOOKED_AT]:
            one, other = cut(view(training), read(deployed))
            if one.shape[:2] != other.shape[:2] or 0 in one.shape:
                return empty
            rows, columns = _places(one.shape[0], one.shape[1])
            # Bytes read as another type may be any number, or none.
            with np.errstate(invalid="ignore"):
                firsts.append(one[rows, columns].astype(np.float64))
                seconds.append(other[rows, columns].astype(np.float64))
        first, second = np.concatenate(firsts), np.concatenate(seconds)
        finite = np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
        return first[finite], second[finite]

    def _shifted(self, layouts: _Layouts) -> Iterator[Candidate]:
        """The same picture, a few pixels away."""
        steps = range(-_MOST_SHIFT, _MOST_SHIFT + 1)
        offset = Correction(message("check_io.set_crop"), message("check_io.set_crop_offset"))
        for view, reading in self._plain_readings(layouts):
            if any(change.kind == "reshaped" for change in reading.changes):
                continue
            for down, right in ((down, right) for down in steps for right in steps if down or right):
                change = IoChange("shifted", _lies(down, right), offset)
                candidate = self._candidate((*reading.changes, change), view, reading.view, _shifting(down, right))
                if candidate is not None:
                    yield candidate

    def _boxed(self, layouts: _Layouts) -> Iterator[Claim]:
        """Letterboxed pictures: another border, or another place on the canvas."""
        for view, reading in self._plain_readings(layouts):
            boxes = content_box(view(self.training[0])), content_box(reading.view(self.deployed[0]))
            if not any(box.border for box in boxes):
                continue
            moved = (
                boxes[0].size == boxes[1].size and boxes[0] != boxes[1] and _place(boxes[0]) != _place(boxes[1])
            )
            cut = _own_content if moved else _shared_content
            candidate = self._candidate(reading.changes, view, reading.view, cut)
            candidates = iter([candidate] if candidate is not None else [])
            for claim in self._verified(candidates):
                yield _with_border(claim, boxes, moved=moved, tolerance=self.judging.tolerance)

    def _plain_readings(self, layouts: _Layouts) -> Iterator[tuple[Callable[[Array], Array], ArrayReading]]:
        """Layouts, without turns."""
        for layout, view in layouts:
            picture = view(self.training[0])
            size = (picture.shape[0], picture.shape[1], picture.shape[2])
            for reading in readings(layout, size, self.deployed[0].shape):
                kinds = {change.kind for change in reading.changes}
                if not kinds & {"transposed", "mirrored", "upside-down"}:
                    yield view, reading


@dataclass(frozen=True, slots=True, eq=False)
class _Saturated:
    """Where values of the deployed side were cut off: channel by channel, infinite where they were not.

    Attributes:
        pairs: Both sides, pixel by pixel.
        low: The lower ends.
        high: The upper ones.
        share: Part of the values that are at them.
    """

    pairs: Callable[[], PixelPairs]
    low: Array
    high: Array
    share: float

    @classmethod
    def of(cls, pairs: Callable[[], PixelPairs], *, piled: bool) -> "_Saturated":
        """Ends of values; only those at which many are, where that is asked."""
        _, values = sample_pixels(pairs(), _PIXELS * _LOOKED_AT)
        low, high = values.min(axis=0), values.max(axis=0)
        shares = [(values == end).mean(axis=0) for end in (low, high)]
        if piled:
            low, high = (
                np.where(share >= _PILED, end, far)
                for end, share, far in zip((low, high), shares, (-np.inf, np.inf), strict=True)
            )
        return cls(pairs, low, high, float(np.mean((values == low) | (values == high))))

    def leave_out(self, candidate: Candidate) -> Candidate | None:
        """The same without pixels that have a value at an end."""

        def pairs() -> PixelPairs:
            for training, deployed in self.pairs():
                kept = ((deployed > self.low) & (deployed < self.high)).all(axis=1)
                yield training[kept], deployed[kept]

        first, second = sample_pixels(pairs(), _PIXELS * _LOOKED_AT)
        fit = best_order(first, second) if len(first) >= _FEWEST_PIXELS else None
        return None if fit is None else Candidate(candidate.changes, pairs, fit)

    def follow(self, linear: LinearFit, slack: float) -> bool:
        """Whether what training has there lies beyond the ends, as it does where it was cut off."""
        wrong = count = 0
        for training, deployed in self.pairs():
            if linear.matrix.shape != (training.shape[1], deployed.shape[1]):
                return False  # it goes from training to the deployed side: nothing is known of the way back
            made = linear.apply(deployed)
            for channel, row in enumerate(linear.matrix):
                place = int(np.abs(row).argmax())
                beyond = np.sign(row[place]) * (training[:, channel] - made[:, channel])
                values = deployed[:, place]
                lower, upper = values == self.low[place], values == self.high[place]
                wrong += int(
                    np.count_nonzero(lower & (beyond > slack)) + np.count_nonzero(upper & (beyond < -slack))
                )
                count += int(np.count_nonzero(lower | upper))
        return wrong <= _MOST_WRONG * count


def _composed(storage: Reinterpretation, reading: ArrayReading) -> Callable[[Array], Array]:
    return lambda array: reading.view(storage.read(array))


def _whole(training: Array, deployed: Array) -> tuple[Array, Array]:
    return training, deployed


def _known_rows(training: Array, deployed: Array) -> tuple[Array, Array]:
    """Both without rows that the deployed side does not hold."""
    if training.shape[:2] != deployed.shape[:2]:
        return training, deployed
    kept = np.isfinite(deployed).all(axis=(1, 2))
    return training[kept], deployed[kept]


def _shared_content(training: Array, deployed: Array) -> tuple[Array, Array]:
    """Both cut to what is content on either side."""
    one, other = content_box(training), content_box(deployed)
    box = Box(
        min(one.top, other.top),
        max(one.bottom, other.bottom),
        min(one.left, other.left),
        max(one.right, other.right),
    )
    if training.shape[:2] != deployed.shape[:2] or not one.border or not other.border:
        return training, deployed
    return box.cut(training), box.cut(deployed)


def _own_content(training: Array, deployed: Array) -> tuple[Array, Array]:
    return content_box(training).cut(training), content_box(deployed).cut(deployed)


def _shifting(down: int, right: int) -> Cut:
    def cut(training: Array, deployed: Array) -> tuple[Array, Array]:
        height, width = training.shape[:2]
        if deployed.shape[:2] != (height, width) or height <= 2 * abs(down) or width <= 2 * abs(right):
            return training[:0], deployed[:0]
        rows = slice(max(0, -down), height - max(0, down)), slice(max(0, down), height - max(0, -down))
        columns = slice(max(0, -right), width - max(0, right)), slice(max(0, right), width - max(0, -right))
        return training[rows[0], columns[0]], deployed[rows[1], columns[1]]

    return cut


def _places(height: int, width: int) -> tuple[Array, Array]:
    """Pixels to look at, the same ones each time."""
    if height * width <= _PIXELS:
        return np.divmod(np.arange(height * width), width)
    return np.divmod(np.random.default_rng(0).choice(height * width, _PIXELS, replace=False), width)


def _lies(down: int, right: int) -> Message:
    """Where a picture lies that was moved; by at least one pixel."""
    moved = [
        message(f"check_io.further_{forward if steps > 0 else backward}", count=abs(steps))
        for steps, forward, backward in ((down, "down", "up"), (right, "right", "left"))
        if steps
    ]
    return message("check_io.lies", where=joined(moved, key="check_io.lies_and"))


def _place(box: Box) -> tuple[int, int]:
    return box.top, box.left


def _with_border(claim: Claim, boxes: tuple[Box, Box], *, moved: bool, tolerance: float) -> Claim:
    """Add what differs around the content."""
    one, other = boxes
    changes = list(claim.changes)
    if moved:
        places = {"row": other.top, "column": other.left, "other_row": one.top, "other_column": one.left}
        where = "centred" if one.top + one.left > other.top + other.left else "corner"
        correction = Correction(message("check_io.set_letterbox"), message(f"check_io.set_letterbox_{where}"))
        changes.append(IoChange("placement", message("check_io.lies_at", **places), correction))
    if one.border and other.border:
        expected = claim.linear.apply(np.array([other.border])[:, : claim.linear.matrix.shape[1]])[0]
        if np.abs(expected - np.array(one.border)).max() > tolerance + 1e-6 * np.abs(expected).max():
            wanted = channel_numbers(one.border)
            text = message("check_io.border_around", deployed=channel_numbers(other.border), training=wanted)
            correction = Correction(message("check_io.set_padding"), verbatim(wanted))
            changes.append(IoChange("padding", text, correction))
    return replace(claim, changes=tuple(changes), accepted=bool(changes) and (claim.exact or claim.accepted))


_FEWEST_VALUES, _MOST_VALUES = 8, 20_000
_MOST_AXES = 4

Read = Callable[[Array], Array]


def _same(array: Array) -> Array:
    return array


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """How two tensors may hold the same.

    Attributes:
        changes: What differs then.
        read: Reads the deployed side so.
        made: Makes of training what the deployed side is compared with; as it is where `read` does it all.
    """

    changes: tuple[IoChange, ...]
    read: Read
    made: Read = _same


def vector_claims(training: Sequence[Array], deployed: Sequence[Array], judging: ClaimCriteria) -> Iterator[Claim]:
    """Verified claims about two sets of tensors, the plainest first.

    Args:
        training: Training's arrays.
        deployed: The deployed side's, paired with them.
        judging: By what claims are judged.
    """
    for way in _reads(training[0], deployed[0]):
        candidate = _candidate(training, deployed, way)
        if candidate is None or candidate.fit.unexplained > _LOOSE:
            continue
        claim = verify(candidate, judging)
        # A smooth function with a gain and an offset behind it is nearly a line: it would explain what noise is.
        alone = claim is not None and claim.changes == way.changes
        if claim is not None and (alone or all(each.kind != "activation" for each in way.changes)):
            yield claim if way.made in (_same, way.read) else replace(claim, notes=(*claim.notes, FORWARD))


def vector_tried(training: Array, deployed: Array) -> tuple[str, ...]:
    """What `vector_claims` looks for between these two, by the keys of its words."""
    kinds = [change.kind for way in _reads(training, deployed) for change in way.changes]
    functions = "functions" if training.shape == deployed.shape else "argmax"
    return (
        *(("axes", "gain") if training.size == deployed.size else ()),
        *((functions,) if "activation" in kinds else ()),
        *(("types",) if {"element-type", "signedness", "byte-order", "row-padding"} & set(kinds) else ()),
    )


def _reads(training: Array, deployed: Array) -> Iterator[_Way]:
    if training.size == deployed.size:
        yield from (_Way(*each) for each in _arranged(training.shape, deployed.shape))
    yield from _activations(training.shape, deployed.shape)
    if training.ndim >= 2 and training.shape == deployed.shape and training.shape[-1] < training.size:
        yield _Way(_ROWS, _sorted_rows, _sorted_rows)
    for storage in storages(training, deployed):
        if not storage.partial:
            yield _Way(storage.changes, storage.read)


def _arranged(wanted: tuple[int, ...], had: tuple[int, ...]) -> Iterator[tuple[tuple[IoChange, ...], Read]]:
    if wanted == had:
        yield (), lambda array: array
    axes = range(len(had))
    if len(had) == len(wanted) <= _MOST_AXES:
        for order in itertools.permutations(axes):
            if tuple(had[axis] for axis in order) == wanted and order != tuple(axes):
                turned = ", ".join(map(str, order))
                value, facts = message("check_io.set_transpose_by", axes=turned), (("axes", str(list(order))),)
                text = message("check_io.axes_permuted", axes=turned)
                correction = Correction(message("check_io.set_layout"), value, facts)
                yield (IoChange("axes", text, correction),), _transposing(order)
    if wanted != had:
        sizes = {"deployed": ", ".join(map(str, had)), "training": ", ".join(map(str, wanted))}
        correction = Correction(message("check_io.set_shape"), verbatim(str(list(wanted))))
        change = IoChange("reshaped", message("check_io.shape_is", **sizes), correction)
        yield (change,), lambda array: array.reshape(wanted)
    elif len(had) >= 2:
        # The same shape over another order of memory.
        for first in range(1, len(had)):
            memory = (*had[first:], *had[:first])
            text = message("check_io.order_of_shape", shape=", ".join(map(str, memory)))
            order = (*range(len(had) - first, len(had)), *range(len(had) - first))
            correction = Correction(message("check_io.set_layout"), message("check_io.set_no_reshape"))
            yield (IoChange("reshaped", text, correction),), _reshaping(memory, order)


def _activations(wanted: tuple[int, ...], had: tuple[int, ...]) -> Iterator[_Way]:
    """A function that one side alone applies; where that is the deployed one, training's values go through it.

    Nothing is inverted: softmax forgets a constant, argmax all but a place, and a sigmoid that is nearly 1 has
    lost its digits.
    """
    for missing in (True, False):
        before, after = (had, wanted) if missing else (wanted, had)
        for name, axis, function in _functions(before, after):
            which = "missing" if missing else "more"
            called = message(f"check_io.function_{name}") if name in _TRANSLATED else verbatim(name)
            text = message(f"check_io.function_is_{which}", function=called)
            if axis is not None and len(before) > 1:
                text = message("check_io.along", what=text, axis=message("check_io.of_axis", axis=axis))
            change = IoChange("activation", text, Correction(message("check_io.set_after"), text))
            yield _Way((change,), function) if missing else _Way((change,), _same, function)


def _functions(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[str, int | None, Read]]:
    """Name, axis and function of what may make an array of one shape of one of another, the most usual first."""
    axes = [axis for axis in reversed(range(len(before))) if before[axis] > 1]
    if before == after:
        for name, along in _ALONG.items():
            yield from ((name, axis, partial(along, axis=axis)) for axis in axes)
        yield from ((name, None, function) for name, function in _PLAIN_FUNCTIONS.items())
    for axis in axes:
        kept = (*before[:axis], 1, *before[axis + 1 :])
        if after in (kept, (*before[:axis], *before[axis + 1 :])):
            yield "argmax", axis, partial(_argmax, axis=axis, keepdims=after == kept)


_ROWS = (
    IoChange(
        "row-order",
        message("check_io.rows_in_order"),
        Correction(message("check_io.set_rows"), message("check_io.set_sort")),
    ),
)


def _candidate(training: Sequence[Array], deployed: Sequence[Array], way: _Way) -> Candidate | None:
    def pairs(count: int | None = None) -> PixelPairs:
        for one, other in zip(training[:count], deployed[:count], strict=True):
            yield way.made(one).reshape(-1, 1), way.read(other).reshape(-1, 1)

    try:
        # What does not hold for one sample is not computed for all.
        first, second = sample_pixels(pairs(1), _MOST_VALUES)
        fit = best_order(first, second) if len(first) == len(second) else None
        if fit is not None and fit.unexplained > _LOOSE:
            return None
        first, second = sample_pixels(pairs(), _MOST_VALUES)
    except ValueError:
        return None
    if len(first) != len(second) or len(first) < _FEWEST_VALUES:
        return None
    fit = best_order(first, second)
    return None if fit is None else Candidate(way.changes, pairs, fit)


def _sorted_rows(array: Array) -> Array:
    rows = array.reshape(-1, array.shape[-1])
    return rows[np.lexsort(rows.T[::-1])]


def _transposing(order: tuple[int, ...]) -> Read:
    return lambda array: array.transpose(order)


def _reshaping(shape: tuple[int, ...], order: tuple[int, ...]) -> Read:
    return lambda array: np.ascontiguousarray(array).reshape(shape).transpose(order)


def _softmax(array: Array, axis: int) -> Array:
    return np.exp(log_probabilities(array, axis))


def _argmax(array: Array, axis: int, *, keepdims: bool) -> Array:
    return np.asarray(array.argmax(axis=axis, keepdims=keepdims))


def _one_hot(array: Array, axis: int) -> Array:
    return np.asarray(array == array.max(axis=axis, keepdims=True))


def _unit_length(array: Array, axis: int) -> Array:
    values = array.astype(np.float64)
    return np.asarray(values / np.sqrt(np.square(values).sum(axis=axis, keepdims=True)))


_ALONG: dict[str, Callable[..., Array]] = {
    "softmax": _softmax,
    "log-softmax": log_probabilities,
    "one_hot": _one_hot,
    "unit_length": _unit_length,
}
# The others have names that all languages share.
_TRANSLATED = ("one_hot", "unit_length", "exponential", "unit_clip", "positive", "half")
_PLAIN_FUNCTIONS: dict[str, Read] = {
    "sigmoid": lambda array: 1 / (1 + np.exp(-array.astype(np.float64))),
    "exponential": lambda array: np.exp(array.astype(np.float64)),
    "tanh": lambda array: np.tanh(array.astype(np.float64)),
    "ReLU": lambda array: np.maximum(array, 0),
    "ReLU6": lambda array: np.clip(array, 0, 6),
    "unit_clip": lambda array: np.clip(array, 0, 1),
    "positive": lambda array: array > 0,
    "half": lambda array: array > 0.5,
}
