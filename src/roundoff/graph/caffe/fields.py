"""Which fields Caffe's messages have: names, numbers, types and defaults, as Caffe and its forks fix them.

A number of 0 marks a field that forks number differently; it is read by its name, in text, alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from roundoff.core import text_proto

__all__ = [
    "ENUMERATIONS",
    "LAYER_TYPES_V1",
    "MESSAGES",
    "PARAMETERS",
    "FieldSpec",
    "MessageSpec",
    "WireKind",
    "message_spec",
    "text_table",
]


# The field tables of what single kinds of layers say; see `roundoff.graph.caffe.fields`.

PARAMETERS: Mapping[str, str] = {
    "TransformationParameter": """
        scale 1 float 1
        mirror 2 bool false
        crop_size 3 uint 0
        mean_file 4 string
        mean_value 5 float*
        force_color 6 bool false
        force_gray 7 bool false""",
    "LossParameter": """
        ignore_label 1 int
        normalize 2 bool
        normalization 3 Normalization VALID""",
    "AccuracyParameter": """
        top_k 1 uint 1
        axis 2 int 1
        ignore_label 3 int""",
    "ArgMaxParameter": """
        out_max_val 1 bool false
        top_k 2 uint 1
        axis 3 int""",
    "ConcatParameter": """
        concat_dim 1 uint 1
        axis 2 int 1""",
    "BatchNormParameter": """
        use_global_stats 1 bool
        moving_average_fraction 2 float 0.999
        eps 3 float 1e-5""",
    "BiasParameter": """
        axis 1 int 1
        num_axes 2 int 1
        filler 3 FillerParameter
        bias_from_blob 4 bool true""",
    "ClipParameter": """
        min 1 float
        max 2 float""",
    "ConvolutionParameter": """
        num_output 1 uint
        bias_term 2 bool true
        pad 3 uint*
        kernel_size 4 uint*
        group 5 uint 1
        stride 6 uint*
        weight_filler 7 FillerParameter
        bias_filler 8 FillerParameter
        pad_h 9 uint 0
        pad_w 10 uint 0
        kernel_h 11 uint
        kernel_w 12 uint
        stride_h 13 uint
        stride_w 14 uint
        engine 15 Engine DEFAULT
        axis 16 int 1
        force_nd_im2col 17 bool false
        dilation 18 uint*""",
    "CropParameter": """
        axis 1 int 2
        offset 2 uint*""",
    "DataParameter": """
        source 1 string
        scale 2 float 1
        mean_file 3 string
        batch_size 4 uint
        crop_size 5 uint 0
        mirror 6 bool false
        rand_skip 7 uint 0
        backend 8 Backend LEVELDB
        force_encoded_color 9 bool false
        prefetch 10 uint 4""",
    "DropoutParameter": """
        dropout_ratio 1 float 0.5
        scale_train 2 bool true""",
    "DummyDataParameter": """
        data_filler 1 FillerParameter*
        num 2 uint*
        channels 3 uint*
        height 4 uint*
        width 5 uint*
        shape 6 BlobShape*""",
    "EltwiseParameter": """
        operation 1 EltwiseOp SUM
        coeff 2 float*
        stable_prod_grad 3 bool true""",
    "ELUParameter": "alpha 1 float 1",
    "EmbedParameter": """
        num_output 1 uint
        input_dim 2 uint
        bias_term 3 bool true
        weight_filler 4 FillerParameter
        bias_filler 5 FillerParameter""",
    "EngineParameter": "engine 1 Engine DEFAULT",
    "ExpParameter": """
        base 1 float -1
        scale 2 float 1
        shift 3 float 0""",
    "FlattenParameter": """
        axis 1 int 1
        end_axis 2 int -1""",
    "HDF5DataParameter": """
        source 1 string
        batch_size 2 uint
        shuffle 3 bool false""",
    "HingeLossParameter": "norm 1 HingeNorm L1",
    "ImageDataParameter": """
        source 1 string
        scale 2 float 1
        mean_file 3 string
        batch_size 4 uint 1
        crop_size 5 uint 0
        mirror 6 bool false
        rand_skip 7 uint 0
        shuffle 8 bool false
        new_height 9 uint 0
        new_width 10 uint 0
        is_color 11 bool true
        root_folder 12 string""",
    "InnerProductParameter": """
        num_output 1 uint
        bias_term 2 bool true
        weight_filler 3 FillerParameter
        bias_filler 4 FillerParameter
        axis 5 int 1
        transpose 6 bool false""",
    "InputParameter": "shape 1 BlobShape*",
    "InterpParameter": """
        height 1 int 0
        width 2 int 0
        zoom_factor 3 int 1
        shrink_factor 4 int 1
        pad_beg 5 int 0
        pad_end 6 int 0""",
    "LogParameter": """
        base 1 float -1
        scale 2 float 1
        shift 3 float 0""",
    "LRNParameter": """
        local_size 1 uint 5
        alpha 2 float 1
        beta 3 float 0.75
        norm_region 4 NormRegion ACROSS_CHANNELS
        k 5 float 1
        engine 6 Engine DEFAULT""",
    "MemoryDataParameter": """
        batch_size 1 uint
        channels 2 uint
        height 3 uint
        width 4 uint""",
    "MVNParameter": """
        normalize_variance 1 bool true
        across_channels 2 bool false
        eps 3 float 1e-9""",
    "NonMaximumSuppressionParameter": """
        nms_threshold 1 float 0.3
        top_k 2 int
        eta 3 float 1""",
    "SaveOutputParameter": """
        output_directory 1 string
        output_name_prefix 2 string
        output_format 3 string
        label_map_file 4 string
        name_size_file 5 string
        num_test_image 6 uint""",
    "DetectionOutputParameter": """
        num_classes 1 uint
        share_location 2 bool true
        background_label_id 3 int 0
        nms_param 4 NonMaximumSuppressionParameter
        save_output_param 5 SaveOutputParameter
        code_type 6 CodeType CORNER
        keep_top_k 7 int -1
        variance_encoded_in_target 8 bool false
        confidence_threshold 9 float
        visualize 10 bool false
        visualize_threshold 11 float
        save_file 12 string""",
    "NormalizeParameter": """
        across_spatial 1 bool true
        scale_filler 2 FillerParameter
        channel_shared 3 bool true
        eps 4 float 1e-10""",
    "ParameterParameter": "shape 1 BlobShape",
    "PermuteParameter": "order 1 uint*",
    "PoolingParameter": """
        pool 1 PoolMethod MAX
        kernel_size 2 uint
        stride 3 uint 1
        pad 4 uint 0
        kernel_h 5 uint
        kernel_w 6 uint
        stride_h 7 uint
        stride_w 8 uint
        pad_h 9 uint 0
        pad_w 10 uint 0
        engine 11 Engine DEFAULT
        global_pooling 12 bool false
        round_mode 13 RoundMode CEIL
        ceil_mode 0 bool true""",
    "PowerParameter": """
        power 1 float 1
        scale 2 float 1
        shift 3 float 0""",
    "PReLUParameter": """
        filler 1 FillerParameter
        channel_shared 2 bool false""",
    "PriorBoxParameter": """
        min_size 1 float*
        max_size 2 float*
        aspect_ratio 3 float*
        flip 4 bool true
        clip 5 bool false
        variance 6 float*
        img_size 7 uint
        img_h 8 uint
        img_w 9 uint
        step 10 float
        step_h 11 float
        step_w 12 float
        offset 13 float 0.5""",
    "QuantParameter": """
        scale 2 float 1
        offset 3 bytes
        with_offset 0 bool true""",
    "DeQuantParameter": """
        channel_wise 0 bool false
        layer_type 0 string
        deqscale 0 float*
        shift_bit 0 float*
        offset 0 float*""",
    "ReductionParameter": """
        operation 1 ReductionOp SUM
        axis 2 int 0
        coeff 3 float 1""",
    "ReLUParameter": """
        negative_slope 1 float 0
        engine 2 Engine DEFAULT""",
    "ReshapeParameter": """
        shape 1 BlobShape
        axis 2 int 0
        num_axes 3 int -1""",
    "ROIPoolingParameter": """
        pooled_h 1 uint 0
        pooled_w 2 uint 0
        spatial_scale 3 float 1""",
    "ScaleParameter": """
        axis 1 int 1
        num_axes 2 int 1
        filler 3 FillerParameter
        bias_term 4 bool false
        bias_filler 5 FillerParameter""",
    "ShuffleChannelParameter": "group 1 uint 1",
    "SliceParameter": """
        slice_dim 1 uint 1
        slice_point 2 uint*
        axis 3 int 1""",
    "SoftmaxParameter": """
        engine 1 Engine DEFAULT
        axis 2 int 1""",
    "ThresholdParameter": "threshold 1 float 0",
    "TileParameter": """
        axis 1 int 1
        tiles 2 int""",
    "UpsampleParameter": """
        scale 1 float 1
        stride 2 int 2
        stride_h 3 int
        stride_w 4 int
        scale_h 0 int
        scale_w 0 int
        upsample_h 0 int
        upsample_w 0 int
        pad_out_h 0 bool false
        pad_out_w 0 bool false""",
}


# The field tables: one line per field with its name, its number, its type (``*``: repeated) and its default.

ENUMERATIONS: Mapping[str, str] = {
    "Phase": "TRAIN=0 TEST=1",
    "Engine": "DEFAULT=0 CAFFE=1 CUDNN=2 MKL2017=3 MKLDNN=4 LIBDNN=3 INTEL_SPATIAL=4 FFT=5",
    "DimCheckMode": "STRICT=0 PERMISSIVE=1",
    "VarianceNorm": "FAN_IN=0 FAN_OUT=1 AVERAGE=2",
    "Backend": "LEVELDB=0 LMDB=1",
    "EltwiseOp": "PROD=0 SUM=1 MAX=2",
    "NormRegion": "ACROSS_CHANNELS=0 WITHIN_CHANNEL=1",
    "PoolMethod": "MAX=0 AVE=1 STOCHASTIC=2",
    "RoundMode": "CEIL=0 FLOOR=1",
    "ReductionOp": "SUM=1 ASUM=2 SUMSQ=3 MEAN=4",
    "CodeType": "CORNER=1 CENTER_SIZE=2 CORNER_SIZE=3",
    "HingeNorm": "L1=1 L2=2",
    "Normalization": "FULL=0 VALID=1 BATCH_SIZE=2 NONE=3",
    "RawDataType": "DOUBLE=0 FLOAT=1 FLOAT16=2 INT=3 UINT=4",
}

# The types of layers before they were texts, with what they are called now.
LAYER_TYPES_V1: Mapping[str, tuple[int, str]] = {
    "NONE": (0, ""), "ABSVAL": (35, "AbsVal"), "ACCURACY": (1, "Accuracy"), "ARGMAX": (30, "ArgMax"),
    "BNLL": (2, "BNLL"), "CONCAT": (3, "Concat"), "CONTRASTIVE_LOSS": (37, "ContrastiveLoss"),
    "CONVOLUTION": (4, "Convolution"), "DATA": (5, "Data"), "DECONVOLUTION": (39, "Deconvolution"),
    "DROPOUT": (6, "Dropout"), "DUMMY_DATA": (32, "DummyData"), "EUCLIDEAN_LOSS": (7, "EuclideanLoss"),
    "ELTWISE": (25, "Eltwise"), "EXP": (38, "Exp"), "FLATTEN": (8, "Flatten"), "HDF5_DATA": (9, "HDF5Data"),
    "HDF5_OUTPUT": (10, "HDF5Output"), "HINGE_LOSS": (28, "HingeLoss"), "IM2COL": (11, "Im2col"),
    "IMAGE_DATA": (12, "ImageData"), "INFOGAIN_LOSS": (13, "InfogainLoss"), "INNER_PRODUCT": (14, "InnerProduct"),
    "LRN": (15, "LRN"), "MEMORY_DATA": (29, "MemoryData"),
    "MULTINOMIAL_LOGISTIC_LOSS": (16, "MultinomialLogisticLoss"), "MVN": (34, "MVN"), "POOLING": (17, "Pooling"),
    "POWER": (26, "Power"), "RELU": (18, "ReLU"), "SIGMOID": (19, "Sigmoid"),
    "SIGMOID_CROSS_ENTROPY_LOSS": (27, "SigmoidCrossEntropyLoss"), "SILENCE": (36, "Silence"),
    "SOFTMAX": (20, "Softmax"), "SOFTMAX_LOSS": (21, "SoftmaxWithLoss"), "SPLIT": (22, "Split"),
    "SLICE": (33, "Slice"), "TANH": (23, "TanH"), "WINDOW_DATA": (24, "WindowData"),
    "THRESHOLD": (31, "Threshold"), "QUANT": (208, "Quant"), "DEQUANT": (209, "DeQuant"),
}  # fmt: skip

MESSAGES: Mapping[str, str] = {
    "BlobShape": "dim 1 int*",
    "BlobProto": """
        shape 7 BlobShape
        data 5 float*
        diff 6 float*
        double_data 8 double*
        double_diff 9 double*
        int8_data 10 bytes
        int32_data 11 int*
        uint64_data 12 uint*
        num 1 int 0
        channels 2 int 0
        height 3 int 0
        width 4 int 0""",
    # A fork that keeps values in one piece of bytes, of half precision too, gives some numbers another meaning.
    "RawBlobProto": """
        shape 7 BlobShape
        data 5 float*
        diff 6 float*
        raw_data_type 10 RawDataType
        raw_diff_type 11 RawDataType
        raw_data 12 bytes
        raw_diff 13 bytes
        num 1 int 0
        channels 2 int 0
        height 3 int 0
        width 4 int 0""",
    "FillerParameter": """
        type 1 string constant
        value 2 float 0
        min 3 float 0
        max 4 float 1
        mean 5 float 0
        std 6 float 1
        sparse 7 int -1
        variance_norm 8 VarianceNorm FAN_IN""",
    "NetState": """
        phase 1 Phase TEST
        level 2 int 0
        stage 3 string*""",
    "NetStateRule": """
        phase 1 Phase
        min_level 2 int
        max_level 3 int
        stage 4 string*
        not_stage 5 string*""",
    "NetParameter": """
        name 1 string
        layers 2 V1LayerParameter*
        input 3 string*
        input_dim 4 int*
        force_backward 5 bool false
        state 6 NetState
        debug_info 7 bool false
        input_shape 8 BlobShape*
        layer 100 LayerParameter*""",
    "ParamSpec": """
        name 1 string
        share_mode 2 DimCheckMode
        lr_mult 3 float 1
        decay_mult 4 float 1""",
    "LayerParameter": """
        name 1 string
        type 2 string
        bottom 3 string*
        top 4 string*
        loss_weight 5 float*
        param 6 ParamSpec*
        blobs 7 BlobProto*
        include 8 NetStateRule*
        exclude 9 NetStateRule*
        phase 10 Phase
        propagate_down 11 bool*
        transform_param 100 TransformationParameter
        loss_param 101 LossParameter
        accuracy_param 102 AccuracyParameter
        argmax_param 103 ArgMaxParameter
        concat_param 104 ConcatParameter
        convolution_param 106 ConvolutionParameter
        data_param 107 DataParameter
        dropout_param 108 DropoutParameter
        dummy_data_param 109 DummyDataParameter
        eltwise_param 110 EltwiseParameter
        exp_param 111 ExpParameter
        hdf5_data_param 112 HDF5DataParameter
        hinge_loss_param 114 HingeLossParameter
        image_data_param 115 ImageDataParameter
        inner_product_param 117 InnerProductParameter
        lrn_param 118 LRNParameter
        memory_data_param 119 MemoryDataParameter
        mvn_param 120 MVNParameter
        pooling_param 121 PoolingParameter
        power_param 122 PowerParameter
        relu_param 123 ReLUParameter
        sigmoid_param 124 EngineParameter
        softmax_param 125 SoftmaxParameter
        slice_param 126 SliceParameter
        tanh_param 127 EngineParameter
        threshold_param 128 ThresholdParameter
        prelu_param 131 PReLUParameter
        reshape_param 133 ReshapeParameter
        log_param 134 LogParameter
        flatten_param 135 FlattenParameter
        reduction_param 136 ReductionParameter
        embed_param 137 EmbedParameter
        tile_param 138 TileParameter
        batch_norm_param 139 BatchNormParameter
        elu_param 140 ELUParameter
        bias_param 141 BiasParameter
        scale_param 142 ScaleParameter
        input_param 143 InputParameter
        crop_param 144 CropParameter
        parameter_param 145 ParameterParameter
        clip_param 148 ClipParameter
        permute_param 202 PermuteParameter
        prior_box_param 203 PriorBoxParameter
        detection_output_param 0 DetectionOutputParameter
        norm_param 206 NormalizeParameter
        normalize_param 0 NormalizeParameter
        quant_param 208 QuantParameter
        dequant_param 0 DeQuantParameter
        antiquant_param 0 QuantParameter
        interp_param 0 InterpParameter
        upsample_param 0 UpsampleParameter
        shuffle_channel_param 0 ShuffleChannelParameter
        roi_pooling_param 0 ROIPoolingParameter
        relu6_param 0 EngineParameter""",
    "V1LayerParameter": """
        layer 1 V0LayerParameter
        bottom 2 string*
        top 3 string*
        name 4 string
        type 5 V1LayerType
        blobs 6 BlobProto*
        blobs_lr 7 float*
        weight_decay 8 float*
        concat_param 9 ConcatParameter
        convolution_param 10 ConvolutionParameter
        data_param 11 DataParameter
        dropout_param 12 DropoutParameter
        hdf5_data_param 13 HDF5DataParameter
        image_data_param 15 ImageDataParameter
        inner_product_param 17 InnerProductParameter
        lrn_param 18 LRNParameter
        pooling_param 19 PoolingParameter
        power_param 21 PowerParameter
        memory_data_param 22 MemoryDataParameter
        argmax_param 23 ArgMaxParameter
        eltwise_param 24 EltwiseParameter
        threshold_param 25 ThresholdParameter
        dummy_data_param 26 DummyDataParameter
        accuracy_param 27 AccuracyParameter
        hinge_loss_param 29 HingeLossParameter
        relu_param 30 ReLUParameter
        slice_param 31 SliceParameter
        include 32 NetStateRule*
        exclude 33 NetStateRule*
        mvn_param 34 MVNParameter
        loss_weight 35 float*
        transform_param 36 TransformationParameter
        tanh_param 37 EngineParameter
        sigmoid_param 38 EngineParameter
        softmax_param 39 SoftmaxParameter
        exp_param 41 ExpParameter
        loss_param 42 LossParameter
        quant_param 0 QuantParameter
        param 1001 string*
        blob_share_mode 1002 DimCheckMode*""",
    "V0LayerParameter": """
        name 1 string
        type 2 string
        num_output 3 uint
        biasterm 4 bool true
        weight_filler 5 FillerParameter
        bias_filler 6 FillerParameter
        pad 7 uint 0
        kernelsize 8 uint
        group 9 uint 1
        stride 10 uint 1
        pool 11 PoolMethod MAX
        dropout_ratio 12 float 0.5
        local_size 13 uint 5
        alpha 14 float 1
        beta 15 float 0.75
        source 16 string
        scale 17 float 1
        meanfile 18 string
        batchsize 19 uint
        cropsize 20 uint 0
        mirror 21 bool false
        k 22 float 1
        blobs 50 BlobProto*
        blobs_lr 51 float*
        weight_decay 52 float*
        rand_skip 53 uint 0
        det_fg_threshold 54 float 0.5
        det_bg_threshold 55 float 0.5
        det_fg_fraction 56 float 0.25
        det_context_pad 58 uint 0
        det_crop_mode 59 string
        new_num 60 int 0
        new_channels 61 int 0
        new_height 62 int 0
        new_width 63 int 0
        shuffle_images 64 bool false
        concat_dim 65 uint 1""",
    **PARAMETERS,
}


WireKind = Literal["int", "uint", "bool", "float", "double", "string", "bytes", "enum", "message"]

_SCALARS: Mapping[str, WireKind] = {
    "int": "int", "uint": "uint", "bool": "bool", "float": "float", "double": "double", "string": "string",
    "bytes": "bytes",
}  # fmt: skip
_TEXT_KINDS: Mapping[WireKind, Any] = {"uint": "int", "double": "float"}
# Fields of messages that steer training alone: what a fork adds to them changes no result.
_OPEN = ("LayerParameter", "V1LayerParameter", "ParamSpec", "FillerParameter", "TransformationParameter",
         "LossParameter", "DataParameter", "ImageDataParameter", "AccuracyParameter",
         "SaveOutputParameter")  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field.

    Attributes:
        name: Its name.
        number: Its number in files; 0 when forks do not agree on one.
        kind: What its values are.
        repeated: Whether it may have several.
        message: The name of the message that it holds, where it is one.
        values: The names of an enumeration with their numbers, where it is one.
        default: What it is when it is not given; None when there is no such value.
    """

    name: str
    number: int
    kind: WireKind
    repeated: bool
    message: str = ""
    values: Mapping[str, int] = field(default_factory=dict)
    default: bool | int | float | str | None = None


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """The fields of a message, by name and by number."""

    name: str
    by_name: Mapping[str, FieldSpec]
    by_number: Mapping[int, FieldSpec]


@cache
def message_spec(name: str) -> MessageSpec:
    """The fields of a message of this name."""
    specs = [_field(line) for line in MESSAGES[name].splitlines() if line.strip()]
    return MessageSpec(
        name, {spec.name: spec for spec in specs}, {spec.number: spec for spec in specs if spec.number}
    )


def _field(line: str) -> FieldSpec:
    name, number, kind, *default = line.split()
    repeated = kind.endswith("*")
    kind = kind.rstrip("*")
    if kind in _SCALARS:
        given = _value(default[0], _SCALARS[kind]) if default else None
        return FieldSpec(name, int(number), _SCALARS[kind], repeated, default=given)
    if kind in MESSAGES:
        return FieldSpec(name, int(number), "message", repeated, message=kind)
    return FieldSpec(
        name, int(number), "enum", repeated, values=_values(kind), default=default[0] if default else None
    )


def _values(enumeration: str) -> Mapping[str, int]:
    if enumeration == "V1LayerType":
        return {name: number for name, (number, _) in LAYER_TYPES_V1.items()}
    pairs = (word.split("=") for word in ENUMERATIONS[enumeration].split())
    return {name: int(number) for name, number in pairs}


def _value(text: str, kind: WireKind) -> bool | int | float | str:
    if kind == "bool":
        return text == "true"
    if kind in ("float", "double"):
        return float(text)
    return text if kind == "string" else int(text)


@cache
def text_table(name: str) -> text_proto.FieldTable:
    """The same fields for reading and writing text."""
    fields = {
        spec.name: text_proto.Field(
            _TEXT_KINDS.get(spec.kind, spec.kind),
            repeated=spec.repeated,
            table=text_table(spec.message) if spec.message else None,
            names=spec.values,
        )
        for spec in message_spec(name).by_name.values()
    }
    return text_proto.FieldTable(name, fields, open=name in _OPEN)
