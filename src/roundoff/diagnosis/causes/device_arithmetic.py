"""Causes in the arithmetic of a device: half precision, values that are not finite, rounding, accumulators."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import in_half, is_emulated
from roundoff.diagnosis.devices.kernels.fit import is_known_kernel
from roundoff.diagnosis.devices.proof import arithmetics, called, energy, only_dumped, tried, where
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Measure, Remedy, RemedyChange
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, message

# Half precision ends before the values do.

LARGEST, SMALLEST_NORMAL, SMALLEST = 65504.0, 2.0**-14, 2.0**-24
# Signals: this share of the values is beyond half precision.
_SEEN = 1e-4
# Values of which half precision would change more than this part of the error are not in half precision.
_STAYS = 1e-3


def _saturated(exact: Array) -> Array:
    return np.clip(exact, -LARGEST, LARGEST)


def _infinite(exact: Array) -> Array:
    with np.errstate(over="ignore"):
        return exact.astype(np.float16).astype(np.float32)


def _flushed(exact: Array) -> Array:
    return np.where(np.abs(exact) < SMALLEST_NORMAL, 0, exact)


def _gradual(exact: Array) -> Array:
    return np.where(np.abs(exact) < SMALLEST_NORMAL, np.rint(exact / SMALLEST) * SMALLEST, exact)


def _all_nan(exact: Array) -> Array:
    return np.where(np.abs(exact) > LARGEST, np.nan, exact)


_WAYS: tuple[tuple[Message, Callable[[Array], Array]], ...] = (
    (message("diagnosis.half_saturated"), _saturated),
    (message("diagnosis.half_infinite"), _infinite),
    (message("diagnosis.half_nan"), _all_nan),
    (message("diagnosis.half_zero"), _flushed),
    (message("diagnosis.half_multiples"), _gradual),
)


@cause("fp16-range", of="device", order=30)
class Fp16Range:
    """Values do not fit half precision: they saturate, become infinite, or are flushed to zero."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many values of the reference are beyond half precision."""
        size = np.concatenate([np.abs(pair.exact[np.isfinite(pair.exact)]).ravel() for pair in suspect.pairs])
        if not size.size:
            return None
        large, small = float(np.mean(size > LARGEST)), float(np.mean((size < SMALLEST_NORMAL) & (size > 0)))
        inside = _emulated_node(case, suspect) is not None and case.numbers.kind == "float16"
        seen = inside or max(large, small) > _SEEN
        return Signal(1.0, {"too_large": large, "too_small": small}) if seen else None

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference in half precision."""
        best = _inside(case, suspect)
        largest = max(
            float(np.abs(pair.exact[np.isfinite(pair.exact)]).max(initial=0.0)) for pair in suspect.pairs
        )
        what = called(suspect)
        for how, way in _WAYS:
            if not _ends_so(suspect, way):
                continue
            proof = tried(
                suspect,
                [way(pair.exact) for pair in suspect.pairs],
                changed=message("diagnosis.half_changed", tensor=what, how=how),
                summary=where(suspect, message("diagnosis.half_summary", tensor=what, most=largest, how=how)),
                changes=(RemedyChange("float", nodes=suspect.nodes, tensors=(suspect.tensor,), value="float32"),),
            )
            if best is None or proof.recovered > best.recovered:
                best = proof
        return best

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """More range, or smaller values."""
        if suspect.flow == "dump only":
            title = only_dumped(message("diagnosis.half_remedy_dump", tensor=called(suspect)))
            return Remedy(title, "outside", proof.changes)
        return Remedy(message("diagnosis.half_remedy", node=suspect.nodes[0]), "float", proof.changes)


def _ends_so(suspect: DeviceSuspect, way: Callable[[Array], Array]) -> bool:
    """Whether the device's own values end where half precision does: brought to it once more, they stay."""
    moved = error = 0.0
    for pair in suspect.pairs:
        largest = float(np.abs(pair.exact[np.isfinite(pair.exact)]).max(initial=0.0))
        moved += energy(way(pair.found), pair.found, largest)
        error += energy(pair.found, pair.exact, largest)
    return moved <= _STAYS * error


def _emulated_node(case: DeviceReplay, suspect: DeviceSuspect) -> Any | None:
    """The node of a suspect that is one operation alone, if that can be computed in half precision here."""
    node = next((each for each in case.model.proto.graph.node if each.name == suspect.nodes[0]), None)
    return node if node is not None and len(suspect.nodes) == 1 and is_emulated(node.op_type) else None


def _inside(case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
    """Sums and squares inside of an operation in half precision."""
    from onnx.helper import get_attribute_value

    node = _emulated_node(case, suspect)
    if node is None:
        return None
    attributes = {each.name: get_attribute_value(each) for each in node.attribute}
    weights = Weights(case.model)
    made = []
    for sample in suspect.places:
        view = case.view(sample)
        inputs = [weights[name] if name in weights else view[name] for name in node.input if name]
        result = in_half(node.op_type, attributes, inputs)
        if result is None:
            return None
        made.append(result)
    what = called(suspect)
    return tried(
        suspect,
        made,
        changed=message("diagnosis.half_inside_changed", op=node.op_type),
        summary=message("diagnosis.half_inside_summary", op=node.op_type, tensor=what),
        changes=(RemedyChange("float", nodes=suspect.nodes, tensors=(suspect.tensor,), value="float32"),),
    )


# NaN or infinite values out of finite ones.


@cause("not-finite", of="device", order=35)
class NotFiniteValues:
    """A node gives NaN or infinite values although all that it reads is finite."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many values are NaN or infinite where they should be numbers."""
        if suspect.tensor not in case.tensors or not suspect.error.nonfinite:
            return None
        share = suspect.error.nonfinite / max(1, suspect.error.count)
        return Signal(1.0, {"share_not_finite": share})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference on the device's own inputs, which are finite."""
        reads = case.spans[suspect.tensor].reads
        many = size = left = nans = 0
        # All samples: the same numbers as those of a comparison.
        for sample in case.indices:
            view = case.view(sample)
            if not all(np.isfinite(view[name]).all() for name in reads):
                return None
            pair = case.pair(suspect.tensor, sample, view)
            wrong = ~np.isfinite(pair.found)
            many, size = many + int(wrong.sum()), size + wrong.size
            left += int((~np.isfinite(pair.exact))[wrong].sum())
            nans += int(np.isnan(pair.found).sum())
        if not many:
            return None
        kind = "nan" if nans == many else "infinite" if not nans else "any"
        measure = Measure(
            message("diagnosis.measure_not_finite", tensor=called(suspect)),
            "",
            many / size,
            left / size,
            higher_is_better=False,
            samples=len(case.indices),
        )
        told = message(f"diagnosis.not_finite_{kind}", count=many, all=size, tensor=called(suspect))
        if suspect.flow == "dump only":
            summary = where(suspect, told)
        else:
            summary = message("diagnosis.not_finite_although", whole=told)
        return Intervention(
            message("diagnosis.not_finite_changed"),
            (measure,),
            1 - left / many,
            summary,
            (RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,)),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Only the vendor can, or other bits."""
        if suspect.flow == "dump only":
            title = only_dumped(message("diagnosis.dump_again", tensor=called(suspect)))
            return Remedy(title, "outside", proof.changes)
        return Remedy(message("diagnosis.not_finite_remedy"), "outside", proof.changes)


# Integers are rounded in another way than the reference does.


@cause("integer-implementation", of="device", order=60)
class IntegerImplementation:
    """Results are brought to their codes in another way: cut off instead of rounded, or with a short factor."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """The mean difference in steps."""
        if (
            not case.quantizers
            or suspect.tensor not in case.golden.coded
            or suspect.flow == "dump only"
            or suspect.whole
        ):
            return None
        return Signal(1.0, {"mean_steps": suspect.error.mean_shift, "largest_steps": suspect.error.largest})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference with other rounding."""
        best: Intervention | None = None
        what = called(suspect)
        same = suspect.error.same / max(1, suspect.error.count)
        for how, arithmetic in arithmetics(case.arithmetic):
            other = case.golden.with_arithmetic(arithmetic)
            made = [other.compute(suspect.tensor, case.view(sample)) for sample in suspect.places]
            proof = tried(
                suspect,
                made,
                changed=message("diagnosis.integer_implementation_changed", how=how, tensor=what),
                summary=message(
                    "diagnosis.integer_implementation_summary",
                    tensor=what,
                    mean=suspect.error.mean_shift,
                    share=same,
                    how=how,
                ),
                changes=(RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value=str(how)),),
            )
            if best is None or proof.recovered > best.recovered:
                best = proof
        return best

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Ask for rounding, or take the shift into the bias."""
        return Remedy(message("diagnosis.integer_implementation_remedy"), "outside", proof.changes)


# Sums do not fit the register of a device.

_WIDTHS = (32, 24, 20, 18, 17, 16, 15, 12)
# Rounding explains smaller differences.
_LEAST_STEPS = 3.0


@cause("overflow", of="device", order=70)
class DeviceOverflow:
    """Sums of products do not fit the device's accumulator: they wrap around or saturate."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """Differences of many steps, where sums are made of codes."""
        if not case.quantizers or suspect.error.largest < _LEAST_STEPS or suspect.tensor not in case.tensors:
            return None
        if suspect.flow == "dump only" or suspect.whole or is_known_kernel(case, suspect):
            return None
        return Signal(1.0, {"largest_steps": suspect.error.largest})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference with a shorter accumulator."""
        best: Intervention | None = None
        what = called(suspect)
        for bits in _WIDTHS:
            for overflow in ("wrap", "saturate"):
                arithmetic = replace(case.arithmetic, accumulator_bits=bits, overflow=overflow)
                other = case.golden.with_arithmetic(arithmetic)
                made = [other.compute(suspect.tensor, case.view(sample)) for sample in suspect.places]
                proof = tried(
                    suspect,
                    made,
                    changed=message(f"diagnosis.device_overflow_{overflow}_changed", bits=bits),
                    summary=message(f"diagnosis.device_overflow_{overflow}", tensor=what, bits=bits),
                    changes=(
                        RemedyChange(
                            "accumulator", nodes=suspect.nodes, tensors=(suspect.tensor,), value=str(bits)
                        ),
                    ),
                )
                if best is None or proof.recovered > best.recovered:
                    best = proof
                if proof.recovered >= ENOUGH:
                    return proof
        return best

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Smaller weights or fewer of them."""
        return Remedy(message("diagnosis.device_overflow_remedy"), "outside", proof.changes)
