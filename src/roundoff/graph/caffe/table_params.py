"""The field tables of what single kinds of layers say; see `roundoff.graph.caffe.table_text`."""

from collections.abc import Mapping

__all__ = ["PARAMETERS"]

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
