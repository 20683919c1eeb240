"""The field tables: one line per field with its name, its number, its type (``*``: repeated) and its default."""

from collections.abc import Mapping

from roundoff.graph.caffe.table_params import PARAMETERS

__all__ = ["ENUMERATIONS", "LAYER_TYPES_V1", "MESSAGES"]

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
