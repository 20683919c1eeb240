"""Searching for the transformation between two sets of pictures, plain ones first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import Message, joined, message, verbatim
from roundoff.studies.check_io.candidate import Claim, Judging, PixelPairs, Trial, better, sample_pixels, verify
from roundoff.studies.check_io.fitting import best_order
from roundoff.studies.check_io.readings import Box, Reading, content_box, picture_of, readings
from roundoff.studies.check_io.result import Correction, InputChange
from roundoff.studies.check_io.storage import Storage, is_whole, storages

__all__ = ["PictureSearch"]

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
_AS_IT_IS = Storage((), lambda array: array)

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
    judging: Judging

    def claims(self) -> Iterator[Claim]:
        """Verified claims, stage by stage; those of one stage are sorted, the best first."""
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

    def _verified(self, trials: Iterator[Trial]) -> Iterator[Claim]:
        found = [trial for trial in trials if trial.fit.unexplained <= _LOOSE and trial.count <= _MOST_CHANGES]
        if not found:
            return
        best = min(trial.fit.unexplained for trial in found)
        tied = [trial for trial in found if trial.fit.unexplained <= _TIED * best + _ROUNDING]
        tied.sort(key=lambda trial: trial.count)
        claims = []
        for trial in tied[:_MOST_VERIFIED]:
            claim = verify(trial, self.judging)
            if claim is not None:
                claims.append(claim)
        yield from sorted(claims, key=better)

    def _read(self, layouts: Sequence[tuple[str, Callable[[Array], Array]]], storage: Storage) -> Iterator[Trial]:
        """All layouts and turns of the values as `storage` reads them."""
        try:
            stored = storage.read(self.deployed[0])
        except ValueError:
            return
        for layout, view in layouts:
            picture = view(self.training[0])
            size = (picture.shape[0], picture.shape[1], picture.shape[2])
            for reading in readings(layout, size, stored.shape):
                trial = self._trial(
                    (*storage.changes, *reading.changes),
                    view,
                    _composed(storage, reading),
                    _known_rows if storage.partial else _whole,
                )
                if trial is not None:
                    yield trial

    def _unsaturated(self, layouts: Sequence[tuple[str, Callable[[Array], Array]]]) -> Iterator[Claim]:
        """Codes of which some were cut off at the ends of their range: those are left out."""
        low, high = (float(end([end(each) for each in self.deployed])) for end in (np.min, np.max))
        if low not in _ENDS or high not in _ENDS or not all(map(is_whole, self.deployed)):
            return
        share = float(np.mean([((each == low) | (each == high)).mean() for each in self.deployed]))
        trials = (_without(trial, low, high) for trial in self._read(layouts, _AS_IT_IS))
        for claim in self._verified(trial for trial in trials if trial is not None):
            note = message("check_io.cut_left_out", share=f"{share:.1%}", low=f"{low:g}", high=f"{high:g}")
            yield replace(claim, exact=False, notes=(*claim.notes, note))

    def _trial(
        self,
        changes: tuple[InputChange, ...],
        view: Callable[[Array], Array],
        read: Callable[[Array], Array],
        cut: Cut,
    ) -> Trial | None:
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

        return Trial(changes, pairs, fit)

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

    def _shifted(self, layouts: Sequence[tuple[str, Callable[[Array], Array]]]) -> Iterator[Trial]:
        """The same picture, a few pixels away."""
        steps = range(-_MOST_SHIFT, _MOST_SHIFT + 1)
        offset = Correction(message("check_io.set_crop"), message("check_io.set_crop_offset"))
        for view, reading in self._plain_readings(layouts):
            if any(change.kind == "reshaped" for change in reading.changes):
                continue
            for down, right in ((down, right) for down in steps for right in steps if down or right):
                change = InputChange("shifted", _lies(down, right), offset)
                trial = self._trial((*reading.changes, change), view, reading.view, _shifting(down, right))
                if trial is not None:
                    yield trial

    def _boxed(self, layouts: Sequence[tuple[str, Callable[[Array], Array]]]) -> Iterator[Claim]:
        """Letterboxed pictures: another border, or another place on the canvas."""
        for view, reading in self._plain_readings(layouts):
            boxes = content_box(view(self.training[0])), content_box(reading.view(self.deployed[0]))
            if not any(box.border for box in boxes):
                continue
            moved = (
                boxes[0].size == boxes[1].size and boxes[0] != boxes[1] and _place(boxes[0]) != _place(boxes[1])
            )
            cut = _own_content if moved else _shared_content
            trial = self._trial(reading.changes, view, reading.view, cut)
            trials = iter([trial] if trial is not None else [])
            for claim in self._verified(trials):
                yield _with_border(claim, boxes, moved=moved, tolerance=self.judging.tolerance)

    def _plain_readings(
        self, layouts: Sequence[tuple[str, Callable[[Array], Array]]]
    ) -> Iterator[tuple[Callable[[Array], Array], Reading]]:
        """Layouts, without turns."""
        for layout, view in layouts:
            picture = view(self.training[0])
            size = (picture.shape[0], picture.shape[1], picture.shape[2])
            for reading in readings(layout, size, self.deployed[0].shape):
                kinds = {change.kind for change in reading.changes}
                if not kinds & {"transposed", "mirrored", "upside-down"}:
                    yield view, reading


def _without(trial: Trial, low: float, high: float) -> Trial | None:
    """The same without pixels that have a value at either end."""

    def pairs() -> PixelPairs:
        for training, deployed in trial.pairs():
            kept = ((deployed > low) & (deployed < high)).all(axis=1)
            yield training[kept], deployed[kept]

    first, second = sample_pixels(pairs(), _PIXELS * _LOOKED_AT)
    fit = best_order(first, second) if len(first) >= _FEWEST_PIXELS else None
    return None if fit is None else Trial(trial.changes, pairs, fit)


def _composed(storage: Storage, reading: Reading) -> Callable[[Array], Array]:
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
        changes.append(InputChange("placement", message("check_io.lies_at", **places), correction))
    if one.border and other.border:
        expected = claim.linear.apply(np.array([other.border])[:, : claim.linear.matrix.shape[1]])[0]
        if np.abs(expected - np.array(one.border)).max() > tolerance + 1e-6 * np.abs(expected).max():
            wanted = _numbers(one.border)
            text = message("check_io.border_around", deployed=_numbers(other.border), training=wanted)
            correction = Correction(message("check_io.set_padding"), verbatim(wanted))
            changes.append(InputChange("padding", text, correction))
    return replace(claim, changes=tuple(changes), accepted=bool(changes) and (claim.exact or claim.accepted))


def _numbers(values: Sequence[float]) -> str:
    texts = [f"{value:.5g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"
