"""The networks of the public model zoo as their authors chain layers, narrower and on smaller inputs."""

from collections.abc import Callable, Sequence

from tests.graph.caffe.nets import NetText

ZOO: dict[str, Callable[[], NetText]] = {}


def network(build: "Callable[[Zoo], None]") -> "Callable[[Zoo], None]":
    """Enter a network under the name of its function."""

    def made() -> NetText:
        net = Zoo()
        build(net)
        return net

    ZOO[build.__name__] = made
    return build


class Zoo(NetText):
    """A network under construction; methods give the name of the top."""

    def __init__(self) -> None:
        super().__init__({})
        self.inputs: dict[str, tuple[int, ...]] = {}

    def input(self, *shape: int, name: str = "data", old: bool = False) -> str:
        """An input, as a layer or in the form of before."""
        self.inputs[name] = shape
        dims = " ".join(f"dim: {size}" for size in shape)
        if old:
            self.text = f'input: "{name}"\n' + "".join(f"input_dim: {size}\n" for size in shape) + self.text
        else:
            self.add("Input", name, (), name, f"input_param {{ shape {{ {dims} }} }}")
        return name

    def put(self, kind: str, name: str, bottom: str | Sequence[str], params: str = "", top: str = "") -> str:
        self.add(kind, name, bottom, top or name, params)
        return top or name

    def conv(
        self, name: str, bottom: str, out: int, kernel: int | tuple[int, int] = 3, *, stride: int = 1,
        pad: int | tuple[int, int] = 0, relu: str = "ReLU", kind: str = "Convolution", more: str = "",
    ) -> str:  # fmt: skip
        size = (
            f"kernel_size: {kernel}" if isinstance(kernel, int) else f"kernel_h: {kernel[0]} kernel_w: {kernel[1]}"
        )
        pads = f"pad: {pad}" if isinstance(pad, int) else f"pad_h: {pad[0]} pad_w: {pad[1]}"
        said = f"convolution_param {{ num_output: {out} {size} {pads} stride: {stride} {more} }}"
        self.put(kind, name, bottom, said)
        return self.relu(name, kind=relu) if relu else name

    def relu(self, blob: str, kind: str = "ReLU") -> str:
        return self.put(kind, f"{blob}/{kind.lower()}", blob, top=blob)

    def normed(self, blob: str, relu: str = "ReLU") -> str:
        """BatchNorm and Scale in place, as ResNet has them."""
        self.put("BatchNorm", f"bn_{blob}", blob, "batch_norm_param { use_global_stats: true }", blob)
        self.put("Scale", f"scale_{blob}", blob, "scale_param { bias_term: true }", blob)
        return self.relu(blob, relu) if relu else blob

    def conv_bn(self, name: str, bottom: str, out: int, kernel: int | tuple[int, int] = 3, **how: object) -> str:
        relu = str(how.pop("relu", "ReLU"))
        self.conv(name, bottom, out, kernel, relu="", more="bias_term: false " + str(how.pop("more", "")), **how)  # type: ignore[arg-type]
        return self.normed(name, relu)

    def pool(self, name: str, bottom: str, kernel: int, stride: int = 1, pad: int = 0, method: str = "MAX") -> str:
        said = f"pooling_param {{ pool: {method} kernel_size: {kernel} stride: {stride} pad: {pad} }}"
        return self.put("Pooling", name, bottom, said)

    def everywhere(self, name: str, bottom: str) -> str:
        return self.put("Pooling", name, bottom, "pooling_param { pool: AVE global_pooling: true }")

    def dense(self, name: str, bottom: str, out: int, relu: bool = False) -> str:
        self.put("InnerProduct", name, bottom, f"inner_product_param {{ num_output: {out} }}")
        return self.relu(name) if relu else name

    def join(self, name: str, *bottoms: str) -> str:
        return self.put("Concat", name, bottoms)

    def sum(self, name: str, *bottoms: str, relu: bool = False) -> str:
        self.put("Eltwise", name, bottoms, "eltwise_param { operation: SUM }")
        return self.relu(name) if relu else name

    def drop(self, blob: str) -> str:
        return self.put("Dropout", f"drop_{blob}", blob, "dropout_param { dropout_ratio: 0.5 }", blob)

    def vgg(self, bottom: str, widths: Sequence[int], counts: Sequence[int], *, first_pad: int = 1) -> list[str]:
        """Stages of convolutions; gives the last blob of each, before it is pooled."""
        ends = []
        for stage, (width, count) in enumerate(zip(widths, counts, strict=True), start=1):
            for number in range(1, count + 1):
                pad = first_pad if stage == number == 1 else 1
                bottom = self.conv(f"conv{stage}_{number}", bottom, width, pad=pad)
            ends.append(bottom)
            if stage < len(widths):
                bottom = self.pool(f"pool{stage}", bottom, 2, 2)
        return ends

    def up(self, name: str, bottom: str, out: int, kernel: int, stride: int) -> str:
        said = "weight_filler { type: 'bilinear' } bias_term: false"
        return self.conv(name, bottom, out, kernel, stride=stride, relu="", kind="Deconvolution", more=said)


# Classifiers.


@network
def lenet(net: Zoo) -> None:
    top = net.pool("pool1", net.conv("conv1", net.input(2, 1, 28, 28), 6, 5, relu=""), 2, 2)
    top = net.pool("pool2", net.conv("conv2", top, 10, 5, relu=""), 2, 2)
    net.put("Softmax", "prob", net.dense("ip2", net.dense("ip1", top, 20, relu=True), 10))


def _alex(net: Zoo, *, norm_first: bool) -> None:
    local = "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"

    def finish(number: int, top: str) -> str:
        if norm_first:
            return net.pool(f"pool{number}", net.put("LRN", f"norm{number}", top, local), 3, 2)
        return net.put("LRN", f"norm{number}", net.pool(f"pool{number}", top, 3, 2), local)

    top = finish(1, net.conv("conv1", net.input(2, 3, 67, 67, old=True), 8, 11, stride=4))
    top = finish(2, net.conv("conv2", top, 16, 5, pad=2, more="group: 2"))
    top = net.conv("conv3", top, 24, pad=1)
    top = net.conv("conv4", top, 24, pad=1, more="group: 2")
    top = net.pool("pool5", net.conv("conv5", top, 16, pad=1, more="group: 2"), 3, 2)
    top = net.drop(net.dense("fc7", net.drop(net.dense("fc6", top, 32, relu=True)), 32, relu=True))
    net.put("Softmax", "prob", net.dense("fc8", top, 10))


@network
def alexnet(net: Zoo) -> None:
    _alex(net, norm_first=True)


@network
def caffenet(net: Zoo) -> None:
    _alex(net, norm_first=False)


@network
def network_in_network(net: Zoo) -> None:
    top = net.input(1, 3, 67, 67)
    for number, (kernel, stride, pad) in enumerate([(11, 4, 0), (5, 1, 2), (3, 1, 1)], start=1):
        top = net.conv(f"conv{number}", top, 8, kernel, stride=stride, pad=pad)
        top = net.conv(f"cccp{number}b", net.conv(f"cccp{number}a", top, 8, 1), 8, 1)
        top = net.pool(f"pool{number}", top, 3, 2) if number < 3 else net.drop(top)
    net.put("Softmax", "prob", net.pool("pool4", top, 3, 1, method="AVE"))


@network
def googlenet(net: Zoo) -> None:
    local = "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"
    top = net.pool("pool1/3x3_s2", net.conv("conv1/7x7_s2", net.input(1, 3, 64, 64), 8, 7, stride=2, pad=3), 3, 2)
    top = net.conv(
        "conv2/3x3", net.conv("conv2/3x3_reduce", net.put("LRN", "pool1/norm1", top, local), 8, 1), 12, pad=1
    )
    top = net.pool("pool2/3x3_s2", net.put("LRN", "conv2/norm2", top, local), 3, 2)
    for stage, letters in ((3, "ab"), (4, "abc"), (5, "ab")):
        for letter in letters:
            name = f"inception_{stage}{letter}"
            parts = [net.conv(f"{name}/1x1", top, 4, 1)]
            parts.append(net.conv(f"{name}/3x3", net.conv(f"{name}/3x3_reduce", top, 4, 1), 6, pad=1))
            parts.append(net.conv(f"{name}/5x5", net.conv(f"{name}/5x5_reduce", top, 2, 1), 4, 5, pad=2))
            parts.append(net.conv(f"{name}/pool_proj", net.pool(f"{name}/pool", top, 3, 1, 1), 4, 1))
            top = net.join(f"{name}/output", *parts)
        if stage < 5:
            top = net.pool(f"pool{stage}/3x3_s2", top, 3, 2)
    top = net.drop(net.pool("pool5/7x7_s1", top, 2, 1, method="AVE"))
    net.put("Softmax", "prob", net.dense("loss3/classifier", top, 10))


@network
def vgg16(net: Zoo) -> None:
    top = net.pool(
        "pool5", net.vgg(net.input(1, 3, 32, 32, old=True), (4, 6, 8, 10, 10), (2, 2, 3, 3, 3))[-1], 2, 2
    )
    top = net.drop(net.dense("fc7", net.drop(net.dense("fc6", top, 16, relu=True)), 16, relu=True))
    net.put("Softmax", "prob", net.dense("fc8", top, 10))


def _bottlenecks(net: Zoo, bottom: str, *, stages: Sequence[int], width: int, last_dilated: bool = False) -> str:
    """ResNet's stages; the last one with holes instead of a stride, as segmenters have it."""
    for stage, count in enumerate(stages, start=2):
        for letter in "abcdefgh"[:count]:
            name = f"res{stage}{letter}"
            holes = last_dilated and stage == len(stages) + 1
            stride = 2 if letter == "a" and stage > 2 and not holes else 1
            out = width * 2**stage
            side = bottom
            if letter == "a":
                side = net.conv_bn(f"{name}_branch1", bottom, out, 1, stride=stride, relu="")
            top = net.conv_bn(f"{name}_branch2a", bottom, width, 1, stride=stride)
            more = "dilation: 2" if holes else ""
            top = net.conv_bn(f"{name}_branch2b", top, width, pad=2 if holes else 1, more=more)
            top = net.conv_bn(f"{name}_branch2c", top, out, 1, relu="")
            bottom = net.sum(name, side, top, relu=True)
    return bottom


@network
def resnet50(net: Zoo) -> None:
    top = net.pool("pool1", net.conv_bn("conv1", net.input(1, 3, 64, 64), 8, 7, stride=2, pad=3), 3, 2)
    top = _bottlenecks(net, top, stages=(3, 4, 6, 3), width=4)
    net.put("Softmax", "prob", net.dense("fc1000", net.pool("pool5", top, 2, 1, method="AVE"), 10))


@network
def senet(net: Zoo) -> None:
    top = net.conv_bn("conv1", net.input(1, 3, 32, 32), 8, 7, stride=2, pad=3)
    gate = net.conv("down", net.everywhere("squeeze", top), 2, 1)
    gate = net.put("Sigmoid", "gate", net.conv("up", gate, 8, 1, relu=""))
    side = net.conv_bn("side", top, 8, 1, relu="")
    top = net.relu(net.put("Axpy", "block", [gate, top, side]))
    net.put("Softmax", "prob", net.dense("fc", net.everywhere("pool", top), 10))


@network
def squeezenet(net: Zoo) -> None:
    top = net.pool("pool1", net.conv("conv1", net.input(1, 3, 67, 67), 8, 3, stride=2), 3, 2)
    for number in range(2, 10):
        small = net.conv(f"fire{number}/squeeze1x1", top, 4, 1)
        wide = [
            net.conv(f"fire{number}/expand1x1", small, 6, 1),
            net.conv(f"fire{number}/expand3x3", small, 6, pad=1),
        ]
        top = net.join(f"fire{number}/concat", *wide)
        if number in (3, 5):
            top = net.pool(f"pool{number}", top, 3, 2)
    net.put("Softmax", "prob", net.everywhere("pool10", net.conv("conv10", net.drop(top), 10, 1)))


def _separable(net: Zoo, name: str, bottom: str, channels: int, out: int, stride: int) -> str:
    top = net.conv_bn(f"{name}/dw", bottom, channels, stride=stride, pad=1, more=f"group: {channels}")
    return net.conv_bn(f"{name}/sep", top, out, 1)


@network
def mobilenet(net: Zoo) -> None:
    top, channels = net.conv_bn("conv1", net.input(1, 3, 32, 32), 8, stride=2, pad=1), 8
    for number, (out, stride) in enumerate([(8, 1), (12, 2), (12, 1), (16, 2), (16, 1)], start=2):
        top, channels = _separable(net, f"conv{number}", top, channels, out, stride), out
    net.put("Softmax", "prob", net.conv("fc7", net.everywhere("pool6", top), 10, 1, relu=""))


@network
def mobilenet_v2(net: Zoo) -> None:
    top = net.conv_bn("conv1", net.input(1, 3, 32, 32), 8, stride=2, pad=1, relu="ReLU6")
    for number in range(3):
        name = f"conv2_{number}"
        wide = net.conv_bn(f"{name}/expand", top, 16, 1, relu="ReLU6")
        wide = net.conv_bn(f"{name}/dwise", wide, 16, pad=1, more="group: 16", relu="ReLU6")
        top = net.sum(f"block_{number}", top, net.conv_bn(f"{name}/linear", wide, 8, 1, relu=""))
    net.put("Softmax", "prob", net.conv("fc7", net.everywhere("pool6", top), 10, 1, relu=""))


@network
def shufflenet(net: Zoo) -> None:
    top = net.pool("pool1", net.conv_bn("conv1", net.input(1, 3, 32, 32), 12, stride=2, pad=1), 3, 2)
    for number in range(2):
        name = f"resx{number}"
        side = net.conv_bn(f"{name}_conv1", top, 12, 1, more="group: 3")
        side = net.put("ShuffleChannel", f"shuffle{number}", side, "shuffle_channel_param { group: 3 }")
        side = net.conv_bn(f"{name}_conv2", side, 12, pad=1, kind="ConvolutionDepthwise", relu="")
        top = net.sum(
            f"{name}_elewise", top, net.conv_bn(f"{name}_conv3", side, 12, 1, more="group: 3", relu=""), relu=True
        )
    net.put("Softmax", "prob", net.dense("fc", net.everywhere("pool_ave", top), 10))


@network
def densenet(net: Zoo) -> None:
    top = net.pool("pool1", net.conv_bn("conv1", net.input(1, 3, 32, 32), 8, 7, stride=2, pad=3), 3, 2, 1)
    for number in range(3):
        name = f"conv2_{number}"
        net.put("BatchNorm", f"{name}/bn", top, "batch_norm_param { eps: 1e-5 }")
        net.put("Scale", f"{name}/scale", f"{name}/bn", "scale_param { bias_term: true }", f"{name}/bn")
        new = net.conv(name, net.relu(f"{name}/bn"), 4, pad=1, relu="", more="bias_term: false")
        top = net.join(f"concat_{number}", top, new)
    net.put("Softmax", "prob", net.conv("fc6", net.everywhere("pool5", top), 10, 1, relu=""))


@network
def inception_v4(net: Zoo) -> None:
    top = net.conv_bn("conv1", net.input(1, 3, 35, 35), 8, stride=2)
    top = net.join("stem", net.pool("stem_pool", top, 3, 2), net.conv_bn("stem_conv", top, 8, stride=2))
    parts = [net.conv_bn("b_1x1", top, 4, 1)]
    side = net.conv_bn("b_1x7", net.conv_bn("b_reduce", top, 4, 1), 4, (1, 7), pad=(0, 3))
    parts.append(net.conv_bn("b_7x1", side, 4, (7, 1), pad=(3, 0)))
    parts.append(net.conv_bn("b_proj", net.pool("b_pool", top, 3, 1, 1, method="AVE"), 4, 1))
    net.put(
        "Softmax", "prob", net.dense("classifier", net.drop(net.everywhere("pool", net.join("b", *parts))), 10)
    )


@network
def light_cnn(net: Zoo) -> None:
    top = net.conv("conv1", net.input(1, 1, 32, 32), 12, 5, pad=2, relu="")
    net.add("Slice", "slice1", top, ["slice1_1", "slice1_2"], "slice_param { slice_dim: 1 }")
    net.put("Eltwise", "etlwise1", ["slice1_1", "slice1_2"], "eltwise_param { operation: MAX }")
    net.dense("fc1", net.pool("pool1", "etlwise1", 2, 2), 16)


@network
def sphereface(net: Zoo) -> None:
    top = net.conv("conv1_1", net.input(1, 3, 28, 24), 8, stride=2, pad=1, relu="PReLU")
    side = net.conv("conv1_3", net.conv("conv1_2", top, 8, pad=1, relu="PReLU"), 8, pad=1, relu="PReLU")
    net.put("Normalize", "norm", net.sum("res1_3", top, side), "norm_param { across_spatial: true }")
    net.dense("fc5", "norm", 16)


@network
def mtcnn(net: Zoo) -> None:
    top = net.pool("pool1", net.conv("conv1", net.input(1, 3, 24, 24, old=True), 7, relu="PReLU"), 3, 2)
    top = net.pool("pool2", net.conv("conv2", top, 12, relu="PReLU"), 3, 2)
    top = net.relu(net.dense("conv4", net.conv("conv3", top, 16, 2, relu="PReLU"), 32), "PReLU")
    net.put("Softmax", "prob1", net.dense("conv5-1", top, 2))
    net.dense("conv5-2", top, 4)


@network
def siamese(net: Zoo) -> None:
    for end in ("", "_p"):
        top = net.input(2, 1, 28, 28, name=f"data{end}")
        for number, width in ((1, 6), (2, 8)):
            said = f"convolution_param {{ num_output: {width} kernel_size: 5 }}"
            names = "".join(f"param {{ name: 'conv{number}_{kind}' }}\n" for kind in "wb")
            top = net.pool(
                f"pool{number}{end}", net.put("Convolution", f"conv{number}{end}", top, names + said), 2, 2
            )
        names = "param { name: 'ip_w' } param { name: 'ip_b' }"
        net.put("InnerProduct", f"ip{end}", top, f"{names} inner_product_param {{ num_output: 4 }}")


@network
def spp_net(net: Zoo) -> None:
    top = net.conv("conv5", net.input(1, 3, 29, 37), 6, pad=1)
    net.dense("fc6", net.put("SPP", "spp", top, "spp_param { pyramid_height: 3 pool: MAX }"), 10)


# Segmenters, and what makes pictures of pictures.


def _fcn(net: Zoo) -> tuple[str, list[str]]:
    ends = net.vgg(net.input(1, 3, 40, 40), (4, 6, 8, 8, 8), (2, 2, 3, 3, 3), first_pad=100)
    top = net.drop(net.conv("fc6", net.pool("pool5", ends[-1], 2, 2), 16, 7))
    return net.conv("score_fr", net.drop(net.conv("fc7", top, 16, 1)), 5, 1, relu=""), ends


@network
def fcn32s(net: Zoo) -> None:
    score, _ = _fcn(net)
    net.put("Crop", "score", [net.up("upscore", score, 5, 64, 32), "data"], "crop_param { axis: 2 offset: 19 }")


@network
def fcn8s(net: Zoo) -> None:
    top, _ = _fcn(net)
    for number, offset, name in ((4, 5, "upscore2"), (3, 9, "upscore_pool4")):
        top = net.up(name, top, 5, 4, 2)
        side = net.conv(f"score_pool{number}", f"pool{number}", 5, 1, relu="")
        side = net.put("Crop", f"score_pool{number}c", [side, top], f"crop_param {{ axis: 2 offset: {offset} }}")
        top = net.sum(f"fuse_pool{number}", top, side)
    net.put("Crop", "score", [net.up("upscore8", top, 5, 16, 8), "data"], "crop_param { axis: 2 offset: 31 }")


@network
def segnet(net: Zoo) -> None:
    top = net.input(1, 3, 32, 48)
    said = "bn_param { bn_mode: INFERENCE scale_filler { type: 'constant' value: 1 } }"

    def block(name: str, bottom: str, out: int) -> str:
        blob = net.conv(name, bottom, out, pad=1, relu="")
        return net.relu(net.put("BN", f"{name}_bn", blob, said, blob))

    for number in (1, 2, 3):
        top = block(f"conv{number}_2", block(f"conv{number}_1", top, 6), 6)
        pool = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
        net.add("Pooling", f"pool{number}", top, [f"pool{number}", f"pool{number}_mask"], pool)
        top = f"pool{number}"
    for number in (3, 2, 1):
        top = net.put("Upsample", f"upsample{number}", [top, f"pool{number}_mask"], "upsample_param { scale: 2 }")
        top = block(f"conv{number}_2_D", top, 6)
    net.put("Softmax", "prob", net.conv("conv1_1_D", top, 5, pad=1, relu=""))


@network
def enet(net: Zoo) -> None:
    said = "bn_param { bn_mode: INFERENCE }"

    def block(name: str, bottom: str, out: int, kernel: int | tuple[int, int], **how: object) -> str:
        blob = net.conv(name, bottom, out, kernel, relu="", **how)  # type: ignore[arg-type]
        return net.relu(net.put("BN", f"{name}_bn", blob, said, f"{name}_bn"), "PReLU")

    data = net.input(1, 3, 32, 32)
    first = net.join("concat0_1", net.conv("conv0_1", data, 5, stride=2, pad=1), net.pool("pool0_1", data, 2, 2))
    pool = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
    net.add("Pooling", "pool1_0_4", first, ["pool1_0_4", "pool1_0_4_mask"], pool)
    side = block("conv1_0_0", first, 4, 2, stride=2)
    side = block("conv1_0_2", block("conv1_0_1", side, 4, 3, pad=1), 8, 1)
    top = net.relu(net.sum("eltwise1_0_4", side, "pool1_0_4"), "PReLU")
    side = block("conv2_1_0", top, 4, 1)
    side = block("conv2_1_1b", block("conv2_1_1a", side, 4, (1, 5), pad=(0, 2)), 4, (5, 1), pad=(2, 0))
    side = block("conv2_2", block("conv2_1_2", side, 4, 3, pad=2, more="dilation: 2"), 8, 1)
    top = net.relu(net.sum("eltwise2", side, top), "PReLU")
    net.put("Upsample", "upsample4_0_4", [top, "pool1_0_4_mask"], "upsample_param { scale: 2 }")
    net.conv("deconv6_0_0", "upsample4_0_4", 5, 2, stride=2, relu="", kind="Deconvolution")


@network
def deeplab_v2(net: Zoo) -> None:
    shrink = net.put("Interp", "small", net.input(1, 3, 49, 49), "interp_param { shrink_factor: 2 }")
    for name, data in (("a", "data"), ("b", shrink)):
        top = net.pool(f"pool1_{name}", net.conv_bn(f"conv1_{name}", data, 8, 7, stride=2, pad=3), 3, 2, 1)
        parts = [
            net.conv(f"fc_{name}_{hole}", top, 5, pad=hole, relu="", more=f"dilation: {hole}")
            for hole in (2, 3, 4)
        ]
        net.sum(f"score_{name}", *parts)
    net.put("Interp", "score_b_up", ["score_b", "score_a"])
    net.put("Eltwise", "best", ["score_a", "score_b_up"], "eltwise_param { operation: MAX }")
    net.put("Interp", "up", "best", "interp_param { zoom_factor: 4 }")
    net.put("ArgMax", "labels", "up", "argmax_param { axis: 1 }")


@network
def pspnet(net: Zoo) -> None:
    said = "bn_param { slope_filler { value: 1 } bias_filler { value: 0 } frozen: true momentum: 0.95 }"

    def block(name: str, bottom: str, out: int, kernel: int, pad: int = 0, stride: int = 1) -> str:
        blob = net.conv(name, bottom, out, kernel, pad=pad, stride=stride, relu="", more="bias_term: false")
        return net.relu(net.put("BN", f"{name}/bn", blob, said, blob))

    top = block("conv1_2", block("conv1_1", net.input(1, 3, 97, 97), 6, 3, 1, 2), 8, 3, 1, 2)
    parts = [top]
    for kernel in (25, 12, 6):
        part = block(f"pool_{kernel}_conv", net.pool(f"pool_{kernel}", top, kernel, kernel, method="AVE"), 2, 1)
        parts.append(net.put("Interp", f"pool_{kernel}_interp", part, "interp_param { height: 25 width: 25 }"))
    top = net.conv("conv6", block("conv5_4", net.join("concat", *parts), 8, 3, 1), 5, 1, relu="")
    net.put("Interp", "conv6_interp", top, "interp_param { zoom_factor: 4 }")


@network
def unet(net: Zoo) -> None:
    data = net.input(1, 1, 44, 44)
    one = net.conv("conv1", data, 6)
    two = net.conv("conv2", net.pool("pool1", one, 2, 2), 8)
    up = net.conv("up", two, 6, 2, stride=2, kind="Deconvolution")
    side = net.put("Crop", "cropped", [one, up], "crop_param { axis: 2 offset: 2 offset: 2 }")
    net.conv("score", net.conv("conv3", net.join("both", up, side), 6), 2, 1, relu="")


@network
def hed(net: Zoo) -> None:
    ends = net.vgg(net.input(1, 3, 36, 44), (4, 6, 8), (2, 2, 3), first_pad=35)
    scores = []
    for number, end in enumerate(ends, start=1):
        top = net.conv(f"score-dsn{number}", end, 1, 1, relu="")
        if number > 1:
            top = net.up(f"upsample_{number}", top, 1, 2**number, 2 ** (number - 1))
        crop = net.put("Crop", f"crop_{number}", [top, "data"], "crop_param { axis: 2 offset: 34 }")
        scores.append(net.put("Sigmoid", f"sigmoid-dsn{number}", crop))
    net.conv(
        "fuse",
        net.join("concat-upscore", *[name.replace("sigmoid-dsn", "crop_") for name in scores]),
        1,
        1,
        relu="",
    )


@network
def fsrcnn(net: Zoo) -> None:
    top = net.conv(
        "conv2", net.conv("conv1", net.input(1, 1, 20, 22), 8, 5, pad=2, relu="PReLU"), 4, 1, relu="PReLU"
    )
    net.conv("conv7", top, 1, 9, stride=3, pad=4, relu="", kind="Deconvolution")


@network
def openpose(net: Zoo) -> None:
    top = net.vgg(net.input(1, 3, 32, 40, old=True), (4, 6, 8), (2, 2, 2))[-1]
    branches = [
        net.conv(f"conv5_5_CPM_L{branch}", net.conv(f"conv5_1_CPM_L{branch}", top, 8, pad=1), 5, 1, relu="")
        for branch in (1, 2)
    ]
    both = net.join("concat_stage2", *branches, top)
    net.join(
        "net_output", *(net.conv(f"Mconv1_stage2_L{branch}", both, 5, 7, pad=3, relu="") for branch in (2, 1))
    )


# Detectors.


def _heads(net: Zoo, blobs: Sequence[str], *, classes: int) -> None:
    """SSD's heads: where boxes are moved, what is in them, and where they were."""
    parts: dict[str, list[str]] = {"loc": [], "conf": [], "prior": []}
    for number, blob in enumerate(blobs):
        for kind, count in (("loc", 4), ("conf", classes)):
            top = net.conv(f"{blob}_mbox_{kind}", blob, 6 * count, pad=1, relu="")
            top = net.put("Permute", f"{top}_perm", top, "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            parts[kind].append(net.put("Flatten", f"{top}_flat", top, "flatten_param { axis: 1 }"))
        said = (
            f"prior_box_param {{ min_size: {12 + 12 * number} max_size: {24 + 12 * number} aspect_ratio: 2 "
            "aspect_ratio: 3 flip: true clip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }"
        )
        parts["prior"].append(net.put("PriorBox", f"{blob}_mbox_priorbox", [blob, "data"], said))
    loc, conf = (
        net.put("Concat", f"mbox_{kind}", parts[kind], "concat_param { axis: 1 }") for kind in ("loc", "conf")
    )
    prior = net.put("Concat", "mbox_priorbox", parts["prior"], "concat_param { axis: 2 }")
    top = net.put(
        "Reshape", "mbox_conf_reshape", conf, f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}"
    )
    top = net.put("Softmax", "mbox_conf_softmax", top, "softmax_param { axis: 2 }")
    conf = net.put("Flatten", "mbox_conf_flatten", top, "flatten_param { axis: 1 }")
    net.put("DetectionOutput", "detection_out", [loc, conf, prior], (
        f"detection_output_param {{ num_classes: {classes} share_location: true background_label_id: 0 "
        "nms_param { nms_threshold: 0.45 top_k: 100 } code_type: CENTER_SIZE keep_top_k: 20 "
        "confidence_threshold: 0.05 }"))  # fmt: skip


@network
def ssd_vgg(net: Zoo) -> None:
    top = net.vgg(net.input(1, 3, 48, 48), (4, 6, 8, 8), (2, 2, 3, 3))[-1]
    said = "norm_param { across_spatial: false scale_filler { type: 'constant' value: 20 } channel_shared: false }"
    norm = net.put("Normalize", "conv4_3_norm", top, said)
    top = net.conv("fc6", net.pool("pool5", top, 3, 1, 1), 12, pad=6, more="dilation: 6")
    _heads(net, [norm, net.conv("fc7", top, 12, 1)], classes=4)


@network
def mobilenet_ssd(net: Zoo) -> None:
    top = net.conv_bn("conv0", net.input(1, 3, 64, 64), 8, stride=2, pad=1)
    one = _separable(net, "conv11", _separable(net, "conv1", top, 8, 8, 2), 8, 12, 2)
    _heads(net, [one, _separable(net, "conv13", one, 12, 12, 2)], classes=4)


def _proposals(net: Zoo, top: str, *, python: bool) -> str:
    """The region proposal network of Faster R-CNN."""
    net.input(1, 3, name="im_info")
    top = net.conv("rpn_conv/3x3", top, 8, pad=1)
    score, moves = (
        net.conv(f"rpn_{kind}", top, count, 1, relu="") for kind, count in (("cls_score", 18), ("bbox_pred", 36))
    )
    top = net.put(
        "Reshape", "rpn_cls_score_reshape", score, "reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 0 } }"
    )
    top = net.put("Softmax", "rpn_cls_prob", top)
    top = net.put(
        "Reshape", "rpn_cls_prob_reshape", top, "reshape_param { shape { dim: 0 dim: 18 dim: -1 dim: 0 } }"
    )
    if python:
        said = (
            "python_param { module: 'rpn.proposal_layer' layer: 'ProposalLayer' param_str: \"'feat_stride': 16\" }"
        )
    else:
        said = (
            "proposal_param { feat_stride: 16 base_size: 16 min_size: 16 pre_nms_topn: 200 post_nms_topn: 30 "
            "ratio: 0.5 ratio: 1 ratio: 2 scale: 8 scale: 16 scale: 32 }"
        )
    return net.put("Python" if python else "Proposal", "proposal", [top, moves, "im_info"], said, "rois")


@network
def faster_rcnn_vgg(net: Zoo) -> None:
    top = net.vgg(net.input(1, 3, 96, 128), (4, 6, 8, 8, 8), (2, 2, 3, 3, 3))[-1]
    rois = _proposals(net, top, python=True)
    said = "roi_pooling_param { pooled_w: 7 pooled_h: 7 spatial_scale: 0.0625 }"
    top = net.drop(net.dense("fc6", net.put("ROIPooling", "roi_pool5", [top, rois], said), 16, relu=True))
    net.put("Softmax", "cls_prob", net.dense("cls_score", top, 5))
    net.dense("bbox_pred", top, 20)


@network
def r_fcn(net: Zoo) -> None:
    top = net.pool("pool1", net.conv_bn("conv1", net.input(1, 3, 96, 128), 8, 7, stride=2, pad=3), 3, 2)
    top = _bottlenecks(net, top, stages=(1, 1, 1, 1), width=4, last_dilated=True)
    rois = _proposals(net, top, python=False)
    new = net.conv("conv_new_1", top, 12, 1)
    for kind, out in (("cls", 5), ("bbox", 8)):
        maps = net.conv(f"rfcn_{kind}", new, out * 9, 1, relu="")
        said = f"psroi_pooling_param {{ spatial_scale: 0.0625 output_dim: {out} group_size: 3 }}"
        top = net.put("PSROIPooling", f"psroipooled_{kind}_rois", [maps, rois], said)
        top = net.pool(f"ave_{kind}_score_rois", top, 3, 3, method="AVE")
        if kind == "cls":
            top = net.put("Softmax", "cls_prob_pre", top)
            net.put("Reshape", "cls_prob", top, "reshape_param { shape { dim: -1 dim: 5 } }")


@network
def yolo_v1(net: Zoo) -> None:
    top = net.input(1, 3, 56, 56)
    for number in range(1, 5):
        net.conv(f"conv{number}", top, 6, pad=1, relu="")
        net.put("ReLU", f"relu{number}", f"conv{number}", "relu_param { negative_slope: 0.1 }", f"conv{number}")
        top = net.pool(f"pool{number}", f"conv{number}", 2, 2)
    net.dense("result", net.dense("connect1", top, 24, relu=True), 4 * 4 * 13)


def _leaky(net: Zoo, name: str, bottom: str, out: int, kernel: int = 3, stride: int = 1) -> str:
    blob = net.conv_bn(name, bottom, out, kernel, pad=kernel // 2, stride=stride, relu="")
    return net.put("ReLU", f"{name}_leaky", blob, "relu_param { negative_slope: 0.1 }", blob)


@network
def yolo_v2(net: Zoo) -> None:
    top = _leaky(net, "conv2", net.pool("pool1", _leaky(net, "conv1", net.input(1, 3, 48, 48), 8), 2, 2), 8)
    side = net.put("Reorg", "reorg1", _leaky(net, "route", top, 4, 1), "reorg_param { stride: 2 }")
    top = net.join("concat1", side, _leaky(net, "conv3", net.pool("pool2", top, 2, 2), 12))
    top = net.conv("conv_last", top, 5 * 8, 1, relu="")
    net.put("Region", "region", top, "region_param { classes: 3 coords: 4 boxes_of_each_grid: 5 softmax: true }")


@network
def yolo_v3(net: Zoo) -> None:
    one = _leaky(net, "layer1-conv", net.input(1, 3, 64, 64), 8, stride=2)
    two = _leaky(net, "layer2-conv", one, 8, stride=2)
    small = _leaky(
        net, "layer4-conv", net.sum("layer3-shortcut", two, _leaky(net, "layer3-conv", two, 8)), 8, stride=2
    )
    head = net.conv("layer82-conv", small, 24, 1, relu="")
    net.add(
        "Yolo", "yolo1", head, ["yolo1_coords", "yolo1_obj", "yolo1_classes"], "yolo_param { boxes: 3 classes: 3 }"
    )
    up = net.put("Upsample", "layer86-upsample", small, "upsample_param { scale: 2 }")
    head = net.conv("layer94-conv", net.join("layer87-concat", up, two), 24, 1, relu="")
    net.put("Yolo", "yolo2", head, "yolo_param { boxes: 3 coords: 4 classes: 3 }")


# Sequences.


@network
def lrcn(net: Zoo) -> None:
    net.input(4, 2, name="cont_sentence")
    net.input(4, 2, name="input_sentence")
    picture = net.conv("conv1", net.input(2, 3, 16, 16, name="image"), 4, stride=2)
    static = net.dense("fc8", picture, 6)
    top = net.put(
        "Embed", "embedding", "input_sentence", "embed_param { input_dim: 9 num_output: 5 bias_term: false }"
    )
    top = net.put("LSTM", "lstm1", [top, "cont_sentence"], "recurrent_param { num_output: 6 }")
    top = net.put("LSTM", "lstm2", [top, "cont_sentence", static], "recurrent_param { num_output: 6 }")
    top = net.put("InnerProduct", "predict", top, "inner_product_param { num_output: 9 axis: 2 }")
    net.put("Softmax", "probs", top, "softmax_param { axis: 2 }")


@network
def crnn(net: Zoo) -> None:
    top = net.pool("pool1", net.conv("conv1", net.input(1, 1, 16, 48), 6, pad=1), 2, 2)
    top = net.conv("conv2", top, 8, (8, 2))
    top = net.put("Permute", "permuted", top, "permute_param { order: 3 order: 0 order: 1 order: 2 }")
    net.put("ContinuationIndicator", "cont", (), "continuation_indicator_param { time_step: 23 batch_size: 1 }")
    ahead = net.put("LSTM", "lstm1", [top, "cont"], "recurrent_param { num_output: 5 }")
    back = net.put("Reverse", "reverse1", top, "reverse_param { axis: 0 }")
    back = net.put(
        "Reverse", "reverse2", net.put("LSTM", "lstm2", [back, "cont"], "recurrent_param { num_output: 5 }")
    )
    both = net.put("Concat", "blstm", [ahead, back], "concat_param { axis: 2 }")
    net.put("InnerProduct", "fc1x", both, "inner_product_param { num_output: 7 axis: 2 }")


@network
def ctpn(net: Zoo) -> None:
    top = net.conv("conv5_3", net.input(1, 3, 12, 10), 4, pad=1)
    top = net.put("Im2col", "im2col", top, "convolution_param { kernel_size: 3 pad: 1 }")
    top = net.put("Transpose", "im2col_transpose", top, "transpose_param { dim: 3 dim: 2 dim: 0 dim: 1 }")
    top = net.put("Reshape", "lstm_input", top, "reshape_param { shape { dim: -1 } axis: 1 num_axes: 2 }")
    ahead = net.put("Lstm", "lstm", top, "lstm_param { num_output: 6 clipping_threshold: 1 }")
    back = net.put("Reverse", "rlstm_input", top, "reverse_param { axis: 0 }")
    back = net.put("Lstm", "rlstm_output", back, "lstm_param { num_output: 6 }")
    back = net.put("Reverse", "rlstm", back, "reverse_param { axis: 0 }")
    top = net.put("Concat", "merged", [ahead, back], "concat_param { axis: 2 }")
    top = net.put("Reshape", "parted", top, "reshape_param { shape { dim: 12 dim: 1 } axis: 1 num_axes: 1 }")
    top = net.put("Transpose", "turned", top, "transpose_param { dim: 2 dim: 3 dim: 1 dim: 0 }")
    net.conv("rpn_cls_score", net.conv("fc", top, 8, 1), 4, 1, relu="")


@network
def deconv_net(net: Zoo) -> None:
    bn = "bn_param { scale_filler { value: 1 } shift_filler { value: 0.001 } bn_mode: INFERENCE }"
    top = net.input(1, 3, 16, 16, old=True)
    for number in (1, 2):
        top = net.conv(f"conv{number}", top, 6, pad=1, relu="")
        top = net.relu(net.put("BN", f"bn{number}", top, bn, top))
        said = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
        net.add("Pooling", f"pool{number}", top, [f"pool{number}", f"pool{number}_mask"], said)
        top = f"pool{number}"
    for number, size in ((2, 8), (1, 16)):
        said = f"unpooling_param {{ unpool: MAX kernel_size: 2 stride: 2 unpool_size: {size} }}"
        top = net.put("Unpooling", f"unpool{number}", [top, f"pool{number}_mask"], said)
        top = net.conv(f"deconv{number}", top, 6, pad=1, relu="", kind="Deconvolution")
        top = net.relu(net.put("BN", f"debn{number}", top, bn, top))
    net.conv("seg-score", top, 4, 1, relu="")


@network
def normface(net: Zoo) -> None:
    top = net.dense("fc5", net.conv("conv1", net.input(2, 3, 14, 12), 8, stride=2, relu="PReLU"), 16)
    net.put("Normalize", "norm1", top)


# Others of their time: each has a way to chain layers that those above do not have.


@network
def pvanet(net: Zoo) -> None:
    top = net.conv_bn("conv1_1/conv", net.input(1, 3, 65, 65), 8, 7, stride=2, pad=3, relu="")
    negative = net.put("Power", "conv1_1/neg", top, "power_param { power: 1 scale: -1.0 shift: 0 }")
    both = net.join("conv1_1/concat", top, negative)
    top = net.put("Scale", "conv1_1/scale", both, "scale_param { bias_term: true }")
    top = net.pool("pool1", net.put("ReLU", "conv1_1/relu", top), 3, 2)
    parts = net.conv_bn("a", top, 8, 1), net.conv_bn("b", net.conv_bn("b0", top, 6, 1), 8, pad=1)
    top = net.sum("s", net.join("ab", *parts), net.conv_bn("c", top, 16, 1, relu=""))
    each = "group: 16 bias_term: false"
    top = net.pool("p2", top, 3, 2)
    top = net.conv("up", top, 16, 4, stride=2, pad=1, relu="", kind="Deconvolution", more=each)
    net.put("Softmax", "prob", net.everywhere("gp", top))


@network
def inception_resnet(net: Zoo) -> None:
    top = net.conv_bn("conv1", net.input(1, 3, 35, 35), 8, stride=2)
    for number in range(2):
        parts = (
            net.conv_bn(f"a{number}", top, 4, 1),
            net.conv_bn(f"b{number}_1", net.conv_bn(f"b{number}_0", top, 4, 1), 4, pad=1),
        )
        up = net.conv(f"up{number}", net.join(f"cat{number}", *parts), 8, 1, relu="")
        said = "eltwise_param { operation: SUM coeff: 1.0 coeff: 0.17 }"
        top = net.relu(net.put("Eltwise", f"res{number}", [top, up], said))
    net.put("Softmax", "prob", net.dense("fc", net.drop(net.pool("gp", top, 17, method="AVE")), 10))


@network
def s3fd(net: Zoo) -> None:
    top = net.conv("conv3_3", net.input(1, 3, 32, 40), 6, pad=1)
    said = "norm_param { across_spatial: false channel_shared: false scale_filler { value: 10 } }"
    scaled = net.put("Normalize", "conv3_3_norm", top, said)
    top = net.conv("conf", scaled, 4, pad=1, relu="")
    cut = "slice_param { axis: 1 slice_point: 1 slice_point: 2 slice_point: 3 }"
    net.add("Slice", "slice", top, ["c0", "c1", "c2", "c3"], cut)
    net.put("Eltwise", "background", ["c0", "c1", "c2"], "eltwise_param { operation: MAX }")
    top = net.join("merged", "background", "c3")
    top = net.put("Permute", "perm", top, "permute_param { order: 0 order: 2 order: 3 order: 1 }")
    top = net.put("Flatten", "flat", top, "flatten_param { axis: 1 }")
    top = net.put("Reshape", "pairs", top, "reshape_param { shape { dim: 0 dim: -1 dim: 2 } }")
    top = net.put("Softmax", "softmax", top, "softmax_param { axis: 2 }")
    net.put("Flatten", "scores", top, "flatten_param { axis: 1 }")
    # OpenCV cuts priors where a net says nothing of it; SSD does not.
    said = "min_size: 16 clip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 step: 4"
    net.put("PriorBox", "priors", [scaled, "data"], f"prior_box_param {{ {said} }}")


@network
def colorization(net: Zoo) -> None:
    top = net.conv("conv2", net.conv("conv1", net.input(1, 1, 36, 36), 8, pad=1), 8, stride=2, pad=1)
    top = net.conv("conv5", net.put("BatchNorm", "conv2norm", top), 8, pad=2, more="dilation: 2")
    top = net.conv("conv8_1", top, 8, 4, stride=2, pad=1, kind="Deconvolution")
    top = net.conv("conv8_313", top, 13, 1, relu="")
    said = "scale_param { bias_term: false filler { type: 'constant' value: 2.606 } }"
    top = net.put("Softmax", "class8_313_rh", net.put("Scale", "conv8_313_rh", top, said))
    net.conv("class8_ab", top, 2, 1, relu="")


# Of the documentation's examples.


@network
def all_convolutional(net: Zoo) -> None:
    net.everywhere("score", net.conv("conv2", net.conv("conv1", net.input(1, 3, 16, 16), 8, pad=1), 5, pad=1))


@network
def fsrcnn_of_colours(net: Zoo) -> None:
    top = net.conv("conv1", net.input(1, 3, 40, 40), 8, pad=1)
    net.conv("score", top, 5, pad=1, relu="")
