"""A build configuration as data: every message of the vendor's format, with its defaults.

The classes are the table by which files are read, checked and written: a field that is not here does not exist.
A field that was not given has its default, as in the vendor's format. ``DefaultDataType`` in a layer configuration
means that nothing was asked for.
"""

import functools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum, unique
from typing import Any, Literal, get_args, get_origin, get_type_hints

# The closed lists of names that a build configuration uses, with the vendor's numbers.
#
# A configuration may give a member by name or by number. Of the newer members only the names are published; the
# numbers they have here are larger than any that a configuration can hold.

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
class PictureLayout(Enum):
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


EVERY = "DEFAULT"
"""Stands for every input, every output, or both ends of the graph."""

_REQUIRED = {"required": True}
_BARE = {"bare": True}
"""A list of names that may also be given as one name: the manual does both."""


def _only(*options: Enum) -> dict[str, Any]:
    """Of a longer list of names these are allowed."""
    return {"only": options}


_MODEL_COLORS = (ColorSpace.AutoColorSpace, ColorSpace.BGR, ColorSpace.RGB, ColorSpace.GRAY)
_SOURCE_COLORS = (
    *(*_MODEL_COLORS, ColorSpace.YUYV422, ColorSpace.UYVY422, ColorSpace.YUV420SP, ColorSpace.YVU420SP),
    ColorSpace.RAW,
)
_RECEIVED = (
    *(DataType.U8, DataType.S8, DataType.U16, DataType.S16, DataType.U32, DataType.S32),
    *(DataType.FP16, DataType.FP32),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of a tensor."""

    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OnnxOpt:
    """How the float model is prepared."""

    disable_onnx_optimization: bool = False
    enable_onnxsim: bool = False
    model_check: bool = False
    disable_transformation_check: bool = False
    save_tensors_data: bool = False


@dataclass(frozen=True, slots=True)
class InputQuantConfig:
    """The calibration data of one input, or of all (``DEFAULT``)."""

    tensor_name: str = field(default="", metadata=_REQUIRED)
    calibration_dataset: str = field(default="", metadata=_REQUIRED)
    calibration_format: CalibrationFormat = CalibrationFormat.Image
    calibration_size: int = 32
    calibration_mean: tuple[float, ...] = ()
    calibration_std: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """A request for the precision of some operations: exactly one kind of selector, and what is asked for."""

    layer_name: str = ""
    op_type: str = ""
    start_tensor_names: tuple[str, ...] = field(default=(), metadata=_BARE)
    end_tensor_names: tuple[str, ...] = field(default=(), metadata=_BARE)
    data_type: DataType = DataType.DefaultDataType
    weight_data_type: DataType = DataType.DefaultDataType
    layer_names: tuple[str, ...] = ()
    op_types: tuple[str, ...] = ()
    output_data_type: DataType = DataType.DefaultDataType

    @property
    def kind(self) -> Literal["layer", "op_type", "subgraph"]:
        """How operations are selected; a named layer counts most, then a type, then a part of the graph."""
        if self.layer_name or self.layer_names:
            return "layer"
        return "op_type" if self.op_type or self.op_types else "subgraph"

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers selected by name."""
        return (self.layer_name,) if self.layer_name else self.layer_names

    @property
    def types(self) -> tuple[str, ...]:
        """The types of operations selected."""
        return (self.op_type,) if self.op_type else self.op_types


@dataclass(frozen=True, slots=True)
class QuantConfig:
    """How the model is quantized and how the result is analysed."""

    input_configs: tuple[InputQuantConfig, ...] = ()
    layer_configs: tuple[LayerConfig, ...] = ()
    calibration_method: CalibrationMethod = CalibrationMethod.MinMax
    precision_analysis: bool = False
    precision_analysis_method: PrecisionAnalysisMethod = PrecisionAnalysisMethod.PerLayer
    precision_analysis_mode: PrecisionAnalysisMode = PrecisionAnalysisMode.Reference
    highest_mix_precision: bool = False
    conv_bias_data_type: DataType = field(default=DataType.S32, metadata=_only(DataType.S32, DataType.FP32))
    refine_weight_threshold: float = 1e-6
    enable_smooth_quant: bool = False
    smooth_quant_threshold: float = 0.2
    smooth_quant_strength: float = 0.6
    transformer_opt_level: int = 0
    input_sample_dir: str = ""
    ln_scale_data_type: DataType = field(
        default=DataType.FP32, metadata=_only(DataType.FP32, DataType.S32, DataType.U32)
    )
    check: int = 0
    disable_auto_refine_scale: bool = False
    enable_easy_quant: bool = False
    disable_quant_optimization: bool = False
    enable_brecq: bool = False
    enable_lsq: bool = False
    enable_adaround: bool = False
    finetune_epochs: int = 500
    finetune_block_size: int = 4
    finetune_batch_size: int = 1
    finetune_lr: float = 1e-3
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class InputProcessor:
    """What the deployed model receives (``src_``) and what the float model expects (``tensor_``)."""

    tensor_name: str = field(default="", metadata=_REQUIRED)
    tensor_format: ColorSpace = field(default=ColorSpace.AutoColorSpace, metadata=_only(*_MODEL_COLORS))
    tensor_layout: PictureLayout = PictureLayout.NCHW
    src_format: ColorSpace = field(default=ColorSpace.AutoColorSpace, metadata=_only(*_SOURCE_COLORS))
    src_layout: PictureLayout = PictureLayout.NCHW
    src_dtype: DataType = field(default=DataType.FP32, metadata=_only(*_RECEIVED))
    csc_mode: CscMode = CscMode.NoCSC
    csc_mat: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    src_extra_shapes: tuple[Shape, ...] = ()
    padding: tuple[int, ...] = ()
    padding_mode: str = "constant"
    padding_constant_value: int = 0
    slicing: tuple[int, ...] = ()
    scale: float = 0.0
    zeropoint: int = 0


@dataclass(frozen=True, slots=True)
class OutputProcessor:
    """What the deployed model gives back for one output, or for all (``DEFAULT``)."""

    tensor_name: str = field(default="", metadata=_REQUIRED)
    tensor_layout: PictureLayout = PictureLayout.NCHW
    dst_perm: tuple[int, ...] = ()
    output_dtype: DataType = field(default=DataType.FP32, metadata=_only(DataType.FP32, DataType.U8))


@dataclass(frozen=True, slots=True)
class ConstProcessor:
    """Another value for a constant of the model."""

    name: str = field(default="", metadata=_REQUIRED)
    data: tuple[float, ...] = ()
    data_path: str = ""


@dataclass(frozen=True, slots=True)
class OpProcessor:
    """Other attributes for an operation of the model."""

    op_name: str = field(default="", metadata=_REQUIRED)
    attrs: dict[str, Any] = field(default_factory=dict, metadata=_REQUIRED)


@dataclass(frozen=True, slots=True)
class CompilerConfig:
    """What concerns the compiler of the chip only."""

    static_batch_sizes: tuple[int, ...] = ()
    max_dynamic_batch_size: int = 0
    disable_ir_fix: bool = False
    check: int = 0
    npu_perf: bool = False
    check_mode: CheckMode = CheckMode.CheckOutput
    check_rtol: float = 1e-5
    check_atol: float = 0.0
    check_cosine_simularity: float = 0.999
    check_tensor_black_list: tuple[str, ...] = ()
    ddr_bw_limit: float = 0.0
    enable_slice_mode: bool = False
    enable_data_soft_compression: bool = False
    compiler_group_patterns: tuple[dict[str, Any], ...] = ()
    input_sample_dir: str = ""
    start_tensor_names: tuple[str, ...] = field(default=(), metadata=_BARE)
    end_tensor_names: tuple[str, ...] = field(default=(), metadata=_BARE)
    enable_tile_mode: bool = False
    sub_configs: "tuple[CompilerConfig, ...]" = ()


@dataclass(frozen=True, slots=True)
class Debug:
    """What is written down besides."""

    dump_frontend_graph: bool = False


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """The whole configuration of a build."""

    input: str = ""
    output_dir: str = ""
    output_name: str = "compiled.axmodel"
    work_dir: str = ""
    model_type: ModelType = ModelType.ONNX
    target_hardware: TargetHardware = TargetHardware.AX650
    npu_mode: NpuMode = NpuMode.NPU1
    input_shapes: str = ""
    onnx_opt: OnnxOpt = field(default_factory=OnnxOpt)
    quant: QuantConfig = field(default_factory=QuantConfig)
    input_processors: tuple[InputProcessor, ...] = ()
    output_processors: tuple[OutputProcessor, ...] = ()
    const_processors: tuple[ConstProcessor, ...] = ()
    op_processors: tuple[OpProcessor, ...] = ()
    quant_op_processors: tuple[OpProcessor, ...] = ()
    compiler: CompilerConfig = field(default_factory=CompilerConfig)
    debug: Debug = field(default_factory=Debug)


# The fields of a message, as its class declares them.


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message.

    Attributes:
        name: What it is called.
        kind: What one of its values is: a scalar type, an enumeration, a message, or ``dict`` for free values.
        repeated: Whether it is a list.
        default: What it is when it is not given.
        required: Whether it must be given.
        bare: Whether a list of one may be given as the one.
        only: The members of an enumeration that are allowed; empty for all.
    """

    name: str
    kind: type
    repeated: bool
    default: Any
    required: bool
    bare: bool
    only: tuple[Enum, ...]

    @property
    def is_message(self) -> bool:
        """Whether its values have fields of their own."""
        return is_dataclass(self.kind)

    @property
    def is_scalar(self) -> bool:
        """Whether it has one value, which can be given as a word."""
        return not self.repeated and not self.is_message and self.kind is not dict


def message_fields(message: type) -> Mapping[str, MessageField]:
    """The fields of a message by name, in the order of the class."""
    return _fields(message)


@functools.cache
def _fields(message: Any) -> Mapping[str, MessageField]:
    hints = get_type_hints(message)
    found = {}
    for each in fields(message):
        hint = hints[each.name]
        repeated = get_origin(hint) is tuple
        kind = get_args(hint)[0] if repeated else hint
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        found[each.name] = MessageField(
            each.name,
            dict if get_origin(kind) is dict else kind,
            repeated,
            default,
            bool(each.metadata.get("required")),
            bool(each.metadata.get("bare")),
            tuple(each.metadata.get("only", ())),
        )
    return found
