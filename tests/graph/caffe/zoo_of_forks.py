"""More networks of the zoo: generators, videos, optical flow, detectors and fields that forks of Caffe brought."""

from tests.graph.caffe.zoo import ZOO, Zoo, network

__all__ = ["ZOO"]


@network
def dcgan(net: Zoo) -> None:
    top = net.dense("fc", net.input(2, 16), 128)
    top = net.put("Reshape", "seed", top, "reshape_param { shape { dim: 0 dim: 8 dim: 4 dim: 4 } }")
    for number in range(3):
        top = net.conv(f"d{number}", top, 6, 5, stride=2, pad=2, relu="", kind="Deconvolution")
        top = net.put("ELU", f"elu{number}", net.normed(top, relu=""), "elu_param { alpha: 0.7 }", top)
    net.put("TanH", "picture", net.conv("last", top, 3, pad=1, relu=""))


@network
def pose_machine(net: Zoo) -> None:
    said = "slice_param { axis: 1 slice_point: 3 }"
    net.add("Slice", "slice", net.input(1, 4, 33, 33), ["image", "center_map"], said)
    centre = net.pool("pool_center_lower", "center_map", 9, 8, method="AVE")
    top = net.conv("conv1_stage1", "image", 8, 9, pad=4)
    for number in range(3):
        top = net.pool(f"pool{number}_stage1", top, 3, 2)
    top = net.join("concat_stage2", net.conv("conv5_stage1", top, 5, 1, relu=""), centre)
    net.conv("Mconv1_stage2", top, 5, 11, pad=5)


@network
def resnext(net: Zoo) -> None:
    top = net.pool("pool1", net.conv_bn("conv1", net.input(2, 3, 33, 33), 16, 7, stride=2, pad=3), 3, 2)
    for number in range(2):
        side = net.conv_bn(f"x{number}a", top, 16, 1)
        side = net.conv_bn(f"x{number}b", side, 16, pad=1, more="group: 8")
        top = net.sum(f"x{number}", top, net.conv_bn(f"x{number}c", side, 16, 1, relu=""), relu=True)
    net.put("Softmax", "prob", net.dense("fc", net.everywhere("gp", top), 7))


@network
def retina_face(net: Zoo) -> None:
    large = net.conv_bn("c3", net.input(1, 3, 37, 53), 8, stride=2, pad=1)
    small = net.conv_bn("c4", large, 8, stride=2, pad=1)
    each = "group: 8 bias_term: false"
    up = net.conv("up", small, 8, 4, stride=2, pad=1, relu="", kind="Deconvolution", more=each)
    up = net.put("Crop", "crop", [up, large], "crop_param { axis: 2 offset: 0 offset: 0 }")
    top = net.conv("score", net.sum("plus", up, large), 4, 1, relu="")
    top = net.put("Reshape", "pairs", top, "reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 0 } }")
    top = net.put("Softmax", "prob", top)
    net.put("Reshape", "back", top, "reshape_param { shape { dim: 0 dim: 4 dim: -1 dim: 0 } }")


@network
def c3d(net: Zoo) -> None:
    top = net.input(2, 3, 8, 24, 24)
    for number, (out, depth) in enumerate([(4, 1), (6, 2), (8, 2)], 1):
        said = f"num_output: {out} kernel_size: 3 kernel_depth: 3 pad: 1 temporal_pad: 1"
        top = net.relu(net.put("Convolution3D", f"conv{number}a", top, f"convolution_param {{ {said} }}"))
        said = f"pool: MAX kernel_size: 2 kernel_depth: {depth} stride: 2 temporal_stride: {depth}"
        top = net.put("Pooling3D", f"pool{number}", top, f"pooling_param {{ {said} }}")
    net.put("Softmax", "prob", net.dense("fc8-1", net.relu(net.dense("fc6-1", top, 12)), 5))


@network
def crf_rnn(net: Zoo) -> None:
    top = net.conv("conv1", net.input(1, 3, 24, 24), 8, stride=2, pad=1)
    top = net.conv("score", net.conv("fc7", top, 8, 1), 5, 1, relu="")
    up = net.conv("upscore", top, 5, 4, stride=2, relu="", kind="Deconvolution")
    coarse = net.put("Crop", "coarse", [up, "data"], "crop_param { axis: 2 offset: 1 }")
    net.add("Split", "splitting", coarse, ["unary", "Q0"])
    net.put("MultiStageMeanfield", "inference1", ["unary", "Q0", "data"], "multi_stage_meanfield_param { "
            "num_iterations: 10 compatibility_mode: POTTS threshold: 2 theta_alpha: 160 theta_beta: 3 "
            "theta_gamma: 3 spatial_filter_weight: 3 bilateral_filter_weight: 5 }", "pred")  # fmt: skip
    net.put("Softmax", "prob", "pred")


@network
def refine_det(net: Zoo) -> None:
    top = net.conv("conv4_3", net.input(1, 3, 32, 32), 8, stride=2, pad=1)
    parts: dict[str, list[str]] = {}
    for number in range(2):
        top = net.conv(f"conv{number}", top, 8, stride=2, pad=1)
        lateral = net.conv(f"P{number}", top, 8, pad=1)
        for stage, source, classes in (("arm", top, 2), ("odm", lateral, 4)):
            for word, width in (("loc", 4), ("conf", classes)):
                name = f"{stage}_{word}{number}"
                made = net.conv(name, source, 3 * width, pad=1, relu="")
                turned = net.put(
                    "Permute", f"{name}_perm", made, "permute_param { order: 0 order: 2 order: 3 order: 1 }"
                )
                flat = net.put("Flatten", f"{name}_flat", turned, "flatten_param { axis: 1 }")
                parts.setdefault(f"{stage}_{word}", []).append(flat)
        said = "min_size: 8 aspect_ratio: 2 flip: true variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
        prior = net.put("PriorBox", f"prior{number}", [top, "data"], f"prior_box_param {{ {said} }}")
        parts.setdefault("arm_priorbox", []).append(prior)
    for name, blobs in parts.items():
        net.put("Concat", name, blobs, f"concat_param {{ axis: {2 if 'prior' in name else 1} }}")
    for name, classes in (("arm_conf", 2), ("odm_conf", 4)):
        said = f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}"
        rows = net.put("Reshape", f"{name}_reshape", name, said)
        rows = net.put("Softmax", f"{name}_softmax", rows, "softmax_param { axis: 2 }")
        net.put("Flatten", f"{name}_flatten", rows, "flatten_param { axis: 1 }")
    bottoms = ["odm_loc", "odm_conf_flatten", "arm_priorbox", "arm_conf_flatten", "arm_loc"]
    said = (
        "num_classes: 4 share_location: true background_label_id: 0 nms_param { nms_threshold: 0.45 top_k: 400 } "
        "keep_top_k: 200 code_type: CENTER_SIZE confidence_threshold: 0.01 objectness_score: 0.01"
    )
    net.put("DetectionOutput", "detection_out", bottoms, f"detection_output_param {{ {said} }}")


@network
def mobilenet_yolo(net: Zoo) -> None:
    large = net.conv_bn("conv13", net.input(1, 3, 64, 64), 8, stride=4, pad=1)
    small = net.conv_bn("conv17", large, 8, stride=2, pad=1)
    grids = [net.conv(f"out{number}", top, 3 * 9, 1, relu="") for number, top in enumerate((small, large))]
    said = " ".join(f"biases: {each}" for each in (20, 37, 49, 94, 73, 201, 143, 265, 153, 121, 280, 279))
    net.put("Yolov3DetectionOutput", "detection_out", grids, "yolov3_detection_output_param { "
            "confidence_threshold: 0.2 nms_threshold: 0.45 num_classes: 4 mask_group_num: 2 anchors_scale: 32 "
            f"anchors_scale: 16 mask: 3 mask: 4 mask: 5 mask: 0 mask: 1 mask: 2 {said} }}")  # fmt: skip
    net.put("DetectionEvaluate", "detection_eval", ["detection_out"])


@network
def flownet_c(net: Zoo) -> None:
    slope = "relu_param { negative_slope: 0.1 }"
    towers = []
    for side in "ab":
        top = net.input(1, 3, 64, 96, name=f"img_{side}")
        for number in range(3):
            shared = f'}} param {{ name: "w{number}" }} param {{ name: "b{number}"'
            top = net.conv(f"conv{number}{side}", top, 4 + 2 * number, 5, stride=2, pad=2, relu="", more=shared)
            top = net.put("ReLU", f"relu{number}{side}", top, slope, top)
        towers.append(top)
    said = "pad: 4 kernel_size: 1 max_displacement: 4 stride_1: 1 stride_2: 2"
    match = net.put("Correlation", "corr", towers, f"correlation_param {{ {said} }}")
    match = net.put("ReLU", "corr_relu", match, slope, match)
    match = net.join("blob20", net.conv("redirect", towers[0], 4, 1), match)
    small = net.conv("predict_flow", net.conv("conv3_1", match, 8, pad=1), 2, pad=1, relu="")
    flow = net.put("Resample", "flow", small, "resample_param { width: 96 height: 64 type: LINEAR }")
    warped = net.put("FlowWarp", "warped", ["img_b", flow])
    net.add("Eltwise", "difference", ["img_a", warped], "difference", "eltwise_param { coeff: 1 coeff: -1 }")
    net.put("ChannelNorm", "error", "difference")


@network
def flownet_s(net: Zoo) -> None:
    """As its deploy file has it: pictures in numbers up to 1, less the mean of training."""
    said = (
        "augmentation_param { max_multiplier: 1 augment_during_test: false recompute_mean: 1000 mean_per_pixel: "
    )
    sides = []
    for side in "01":
        picture = net.input(1, 3, 64, 96, name=f"img{side}")
        scaled = net.put(
            "Eltwise", f"blob{side}", [picture, picture], "eltwise_param { coeff: 0.003 coeff: 0.001 }"
        )
        sides.append(net.put("DataAugmentation", f"img{side}s_aug", scaled, f"{said}false }}"))
    top = net.join("input", *sides)
    for number in range(3):
        top = net.conv(f"conv{number}", top, 6 + 2 * number, 5, stride=2, pad=2, relu="")
        top = net.put("ReLU", f"relu{number}", top, "relu_param { negative_slope: 0.1 }", top)
    flow = net.conv("predict_flow", top, 2, pad=1, relu="")
    flow = net.put("Eltwise", "blob44", [flow, flow], "eltwise_param { coeff: 10 coeff: 10 }")
    small = net.put("Downsample", "scaled_flow", [flow, net.conv("conv6", top, 4, stride=2, pad=1)])
    net.put("Accum", "all_sizes", [small, flow])
    net.add("FLOWriter", "writer", net.put("Resample", "out", flow, "resample_param { width: 96 height: 64 }"), [])


@network
def dispnet_corr(net: Zoo) -> None:
    """Disparities are below zero: the second picture is searched to one side only."""
    towers = []
    for side in "ab":
        picture = net.input(1, 3, 48, 96, name=f"img_{side}")
        said = "operation: SUBTRACT value: 104 value: 117 value: 123 input_scale: 255 output_scale: 0.01"
        picture = net.put("Mean", f"{side}_nomean", picture, f"mean_param {{ {said} }}")
        towers.append(net.conv(f"conv1{side}", picture, 6, 5, stride=4, pad=2))
    said = "pad: 10 kernel_size: 1 max_displacement: 10 stride_1: 1 stride_2: 1 single_direction: -1"
    match = net.put("Correlation1D", "corr", towers, f"correlation_param {{ {said} }}")
    match = net.conv("conv3", net.join("both", match, towers[0]), 8, pad=1)
    net.put("NegReLU", "predict", net.conv("pr", match, 1, pad=1, relu=""))


@network
def video_decoder(net: Zoo) -> None:
    """What goes back from features of a video to its voxels."""
    top = net.input(1, 3, 4, 16, 16)
    said = "num_output: 6 kernel_size: 3 kernel_depth: 3 pad: 1 temporal_pad: 1"
    top = net.put("Convolution3D", "conv1a", top, f"convolution_param {{ {said} }}")
    top = net.put("Pooling3D", "pool1", net.relu(top), "pooling_param { kernel_size: 2 kernel_depth: 2 stride: 2 "
                  "temporal_stride: 2 }")  # fmt: skip
    said = "num_output: 4 kernel_size: 4 kernel_depth: 4 stride: 2 temporal_stride: 2 pad: 1 temporal_pad: 1"
    net.relu(net.put("Deconvolution3D", "deconv1", top, f"convolution_param {{ {said} }}"))
