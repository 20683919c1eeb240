"""A build configuration as data: every message of the vendor's format, with its defaults.

The classes are the table by which files are read, checked and written: a field that is not here does not exist.
A field that was not given has its default, as in the vendor's format. ``DefaultDataType`` in a layer configuration
means that nothing was asked for.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from roundoff.vendors.pulsar2.config.enums import (
    CalibrationFormat,
    CalibrationMethod,
    CheckMode,
    ColorSpace,
    CscMode,
    DataType,
    Layout,
    ModelType,
    NpuMode,
    PrecisionAnalysisMethod,
    PrecisionAnalysisMode,
    TargetHardware,
)

__all__ = [
    "EVERY",
    "BuildConfig",
    "CompilerConfig",
    "ConstProcessor",
    "Debug",
    "InputProcessor",
    "InputQuantConfig",
    "LayerConfig",
    "OnnxOpt",
    "OpProcessor",
    "OutputProcessor",
    "QuantConfig",
    "Shape",
]

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
    """A wish for the precision of some operations: exactly one kind of selector, and what is asked for."""

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
    tensor_layout: Layout = Layout.NCHW
    src_format: ColorSpace = field(default=ColorSpace.AutoColorSpace, metadata=_only(*_SOURCE_COLORS))
    src_layout: Layout = Layout.NCHW
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
    tensor_layout: Layout = Layout.NCHW
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
