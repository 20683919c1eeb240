"""The closed lists of names that a build configuration uses, with the vendor's numbers.

A configuration may give a member by name or by number. Of the newer members only the names are published; the
numbers they have here are larger than any that a configuration can hold.
"""

from enum import Enum, unique

__all__ = [
    "UNPUBLISHED",
    "CalibrationFormat",
    "CalibrationMethod",
    "CheckMode",
    "ColorSpace",
    "CscMode",
    "DataType",
    "Layout",
    "ModelType",
    "NpuMode",
    "PrecisionAnalysisMethod",
    "PrecisionAnalysisMode",
    "TargetHardware",
]

UNPUBLISHED = 2**31
"""Numbers from here on mean nothing to the vendor: they do not fit into its 32 bits."""


@unique
class ModelType(Enum):
    """What kind of model is given."""

    ONNX = 0
    QuantAxModel = 1
    QuantONNX = 3
    OptimizedQuantAxModel = 4
    ISP = UNPUBLISHED + 1


@unique
class TargetHardware(Enum):
    """The chip."""

    AX650 = 0
    AX620E = 1
    M76H = 2
    M57 = 5
    AX615 = UNPUBLISHED + 1
    AX637 = UNPUBLISHED + 2
    AX8860 = UNPUBLISHED + 3
    AX620L = UNPUBLISHED + 4
    LAMBERT = UNPUBLISHED + 5
    LAGUNA = UNPUBLISHED + 6


@unique
class NpuMode(Enum):
    """How many cores of the chip; which are there depends on the chip."""

    NPU1 = 0
    NPU2 = 1
    NPU3 = 2
    NPU4 = UNPUBLISHED + 4
    NPU5 = UNPUBLISHED + 5
    ISP1 = UNPUBLISHED + 6
    ISP2 = UNPUBLISHED + 7
    ISP3 = UNPUBLISHED + 8


@unique
class DataType(Enum):
    """How a number is stored."""

    DefaultDataType = 0
    U8 = 1
    S8 = 2
    U16 = 3
    S16 = 4
    U32 = 5
    S32 = 6
    U64 = 7
    S64 = 8
    FP16 = 9
    FP32 = 10
    BF16 = 11
    NVFP4 = UNPUBLISHED + 1


@unique
class ColorSpace(Enum):
    """What the channels of a picture are."""

    AutoColorSpace = 0
    GRAY = 1
    BGR = 2
    RGB = 3
    RGBA = 4
    YUV420SP = 6
    YVU420SP = 7
    YUYV422 = 8
    UYVY422 = 9
    RAW = 10


@unique
class Layout(Enum):
    """The order of a picture's axes."""

    DefaultLayout = 0
    NHWC = 1
    NCHW = 2


@unique
class CscMode(Enum):
    """Which matrix turns YUV into the model's colours."""

    NoCSC = 0
    Matrix = 1
    FullRange = 2
    LimitedRange = 3


@unique
class CalibrationFormat(Enum):
    """What the files of a calibration data set are."""

    Image = 0
    Numpy = 1
    Binary = 2
    NumpyObject = 3


@unique
class CalibrationMethod(Enum):
    """How ranges are taken from calibration data."""

    MinMax = 0
    Percentile = 1
    MSE = 2
    KL = 3


@unique
class PrecisionAnalysisMethod(Enum):
    """Whether an operation is fed the float model's activations, or the quantized model's own."""

    PerLayer = 0
    EndToEnd = 1


@unique
class PrecisionAnalysisMode(Enum):
    """Who runs the quantized model: a reference implementation, or a simulator of the chip."""

    Reference = 0
    NPUBackend = 1


@unique
class CheckMode(Enum):
    """What the compiler's own check looks at."""

    CheckOutput = 0
    CheckPerLayer = 1
