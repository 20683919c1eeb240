"""Everything calibration observed of a model: enough to find the scales of any plan without running it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.quantizer import QuantSpec
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.errors import BadInput, nearest
from roundoff.quantize.calibration.observation import ChannelMismatch, Observation, merge_observations
from roundoff.quantize.calibration.ranges import observed_range
from roundoff.quantize.calibration.registry import Detail, Options

__all__ = ["Calibration"]

# A note names so many tensors.
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What was observed of the tensors of a model.

    Attributes:
        observations: By tensor name, in execution order.
        samples: Number of samples seen.
        detail: Whether distributions are known, or ranges only.
    """

    observations: Mapping[str, Observation]
    samples: int
    detail: Detail

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of the data."""
        notes = [] if self.samples > 1 else ["calibrated on a single sample: other inputs may exceed its ranges"]
        damaged = {name: each for name, each in self.observations.items() if each.nans or each.infs}
        for name, each in list(damaged.items())[:_MOST_NAMED]:
            bad = counted(each.nans + each.infs, "element")
            notes.append(f"tensor {name!r}: {bad} of {each.count} NaN or infinite, left out of calibration")
        if len(damaged) > _MOST_NAMED:
            rest = counted(len(damaged) - _MOST_NAMED, "more tensor")
            notes.append(f"{rest} with NaN or infinite elements, left out of calibration")
        return (*notes, *self._notes_on_ranges())

    def _notes_on_ranges(self) -> list[str]:
        empty, zero, constant = [], [], []
        for name, each in self.observations.items():
            if each.finite == 0:
                empty.append(name)
            elif not each.low.any() and not each.high.any():
                zero.append(name)
            elif each.axis is None and np.array_equal(each.low, each.high):
                constant.append(name)
        found = {
            "no finite element in any sample; the scale is 1": empty,
            "always zero; the scale is 1": zero,
            "the same value everywhere in all samples": constant,
        }
        return [f"{_listed(names)}: {what}" for what, names in found.items() if names]

    def observation(self, tensors: Sequence[str]) -> Observation:
        """What is known of the elements of several tensors together.

        Raises:
            BadInput: One was not observed, or they cannot share one scale.
        """
        for name in tensors:
            if name not in self.observations:
                raise BadInput(
                    f"Tensor {name!r} was not observed in this calibration.",
                    fix=f"{nearest(name, self.observations)} If the plan has changed, calibrate again",
                )
        try:
            return merge_observations([self.observations[name] for name in tensors])
        except ChannelMismatch as error:
            what = f"The tensors {', '.join(map(repr, tensors))} cannot share their scales: {error}."
            raise BadInput(what, fix="quantize them with one scale for the whole tensor") from error

    def range(
        self, tensors: Sequence[str], spec: QuantSpec, method: str, options: Options | None = None
    ) -> tuple[Array, Array]:
        """Smallest and largest value that codes should cover when these tensors share one scale.

        Args:
            tensors: At least one.
            spec: How values become codes.
            method: Name of the calibration method.
            options: Its options by name; those of other methods are allowed.

        Returns:
            Two float64 arrays, of shape [] or [C], for `roundoff.core.quantization.parameters_from_range`.

        Raises:
            BadInput: A tensor was not observed, or not enough for the method; or there is no such method.
        """
        try:
            return observed_range(self.observation(tensors), spec, method, options)
        except BadInput as error:
            raise BadInput(f"{' and '.join(map(repr, tensors))}: {error.what}", fix=error.fix) from error

    def merge(self, other: "Calibration") -> "Calibration":
        """What was observed in both, of the same model on different samples.

        Raises:
            BadInput: They did not observe the same tensors in the same way.
        """
        if list(self.observations) != list(other.observations) or self.detail != other.detail:
            what = "Two calibrations of different tensors, or of different detail, cannot be merged."
            raise BadInput(what, fix="calibrate both times with the same model and the same method")
        try:
            merged = {name: each.merge(other.observations[name]) for name, each in self.observations.items()}
        except ChannelMismatch as error:
            what = f"The calibrations cannot be merged: {error}."
            raise BadInput(what, fix="calibrate both times with the same plan") from error
        return Calibration(merged, self.samples + other.samples, self.detail)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMED]))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{'tensor' if len(names) == 1 else 'tensors'} {shown}{more}"
