"""An input processor of a configuration as the steps that it stands for."""

from roundoff.data.processing import Csc, InputProcessing
from roundoff.data.processing.colours import ColorFormat
from roundoff.data.processing.csc import NO_CSC, CscMode
from roundoff.vendors.pulsar2.config import enums
from roundoff.vendors.pulsar2.config.processor_checks import YUV
from roundoff.vendors.pulsar2.config.schema import InputProcessor

__all__ = ["input_processing"]

_CSC: dict[enums.CscMode, CscMode] = {
    enums.CscMode.Matrix: "matrix",
    enums.CscMode.FullRange: "full-range",
    enums.CscMode.LimitedRange: "limited-range",
}
_FORMATS: dict[enums.ColorSpace, ColorFormat] = {
    enums.ColorSpace.GRAY: "GRAY",
    enums.ColorSpace.BGR: "BGR",
    enums.ColorSpace.RGB: "RGB",
    enums.ColorSpace.YUV420SP: "YUV420SP",
    enums.ColorSpace.YVU420SP: "YVU420SP",
    enums.ColorSpace.YUYV422: "YUYV422",
    enums.ColorSpace.UYVY422: "UYVY422",
}


def input_processing(processor: InputProcessor) -> InputProcessing:
    """The steps from what the deployed model receives to what the float model takes.

    RGB and BGR are never exchanged, whatever the two formats say: that is the vendor's rule. A model whose format
    is not given gets BGR from YUV, the order of the vendor's own pictures.

    Raises:
        BadInput: The parts contradict each other.
    """
    yuv = processor.src_format in YUV
    model = _FORMATS.get(processor.tensor_format)
    mode = _CSC.get(processor.csc_mode) if yuv else None
    return InputProcessing(
        source_format=_FORMATS.get(processor.src_format),
        source_layout="NHWC" if yuv or processor.src_layout is enums.Layout.NHWC else "NCHW",
        source_dtype=processor.src_dtype.name,
        model_format="BGR" if yuv and model is None else model,
        model_layout="NHWC" if processor.tensor_layout is enums.Layout.NHWC else "NCHW",
        csc=NO_CSC if mode is None else Csc(mode, processor.csc_mat if mode == "matrix" else ()),
        scale=processor.scale or 1.0,
        # Without a scale the zero point does not count.
        zero_point=processor.zeropoint if processor.scale else 0,
        slicing=processor.slicing,
        padding=processor.padding,
        padding_value=processor.padding_constant_value,
        mean=processor.mean,
        std=processor.std,
    )
