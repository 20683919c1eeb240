"""What the DeQuant layers of a net hold, by the records of its layers."""

from collections.abc import Mapping

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.exporting import Ending
from roundoff.vendors.amct.half_precision import short_mantissa
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.errors import WrongValue

__all__ = ["ending_of"]


def ending_of(records: Mapping[str, LayerRecord], *, half: bool) -> Ending:
    """Factors with the shifts of the records.

    Args:
        records: Of the layers that are quantized.
        half: Whether factors are cut to half precision.
    """

    def ending(name: str, factors: Array) -> tuple[Array, Array]:
        # A single input has a record of its own, and no shifts.
        record = records.get(name, LayerRecord())
        return short_mantissa(factors) if half else factors, _shifts(name, record, factors.size)

    return ending


def _shifts(name: str, record: LayerRecord, count: int) -> Array:
    bits = np.asarray(record.shift_bit or (0,), np.float32)
    if count % bits.size:
        what = f"The record of {name!r} has {bits.size} values of shift_bit for {count} outputs."
        raise WrongValue(what, fix="give one shift_bit for each scale_w")
    # Groups of a transposed convolution share their factors.
    return np.tile(bits, count // bits.size)
