"""Random nets over the layers that OpenCV has, too: in place or not, in branches, several samples at a time."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from tests.graph.caffe.nets import NetText, run_all, values
from tests.graph.caffe.opencv import agree

# MVN is not among them: where a plane hardly varies, OpenCV loses digits that float32 still has.
IN_PLACE = ["ReLU", "Sigmoid", "TanH", "ELU", "PReLU", "Scale", "BatchNorm", "Dropout", "Power"]
OTHERS = ["Convolution", "Deconvolution", "Pooling", "LRN", "Eltwise", "Concat", "Slice", "ShuffleChannel",
          "Interp", "Softmax", "AbsVal", "ReLU6"]  # fmt: skip


@dataclass
class Drawn:
    """A net as it is drawn, with the shapes of its blobs."""

    draw: st.DrawFn
    net: NetText
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    seed: int = 0

    def numbers(self, *shape: int, low: float = -1.0) -> Array:
        self.seed += 1
        return values(*shape, seed=self.seed, low=low)

    def add(
        self,
        kind: str,
        bottoms: list[str],
        shape: tuple[int, ...],
        params: str = "",
        blobs: tuple[Array, ...] = (),
    ) -> None:
        name = f"{kind.lower()}{len(self.shapes)}"
        self.net.add(kind, name, bottoms, params=params, blobs=blobs)
        self.shapes[name] = shape


def add_in_place(drawn: Drawn, kind: str, source: str) -> None:
    channels = drawn.shapes[source][1]
    blobs: dict[str, tuple[Array, ...]] = {
        "PReLU": (drawn.numbers(channels),),
        "Scale": (drawn.numbers(channels), drawn.numbers(channels)),
        "BatchNorm": (drawn.numbers(channels), drawn.numbers(channels, low=0.2), np.array([1.5], np.float32)),
    }
    params = {"Scale": "scale_param { bias_term: true }", "Power": "power_param { scale: 0.7 shift: 0.1 }"}
    name = f"{kind.lower()}_in_{len(drawn.net.text)}"
    drawn.net.add(kind, name, source, source, params.get(kind, ""), blobs.get(kind, ()))


def add_other(drawn: Drawn, kind: str, source: str) -> None:
    batch, channels, height, width = drawn.shapes[source]
    match kind:
        case "Convolution":
            group = 2 if channels % 2 == 0 and drawn.draw(st.booleans()) else 1
            kernel, pad = drawn.draw(st.sampled_from([(1, 0), (3, 1), (5, 2)]))
            params = f"num_output: 4 kernel_size: {kernel} pad: {pad} group: {group}"
            weights = drawn.numbers(4, channels // group, kernel, kernel), drawn.numbers(4)
            drawn.add(kind, [source], (batch, 4, height, width), f"convolution_param {{ {params} }}", weights)
        case "Deconvolution":
            params = "convolution_param { num_output: 3 kernel_size: 2 stride: 2 bias_term: false }"
            top = (batch, 3, height * 2, width * 2)
            drawn.add(kind, [source], top, params, (drawn.numbers(channels, 3, 2, 2),))
        case "Pooling":
            method, kernel = drawn.draw(st.sampled_from(["MAX", "AVE"])), drawn.draw(st.integers(1, 3))
            stride = drawn.draw(st.integers(1, kernel))
            sizes = [-(-(size - kernel) // stride) + 1 for size in (height, width)]
            if min(height, width) >= kernel:
                params = f"pooling_param {{ pool: {method} kernel_size: {kernel} stride: {stride} }}"
                drawn.add(kind, [source], (batch, channels, *sizes), params)
        case _:
            add_same_size(drawn, kind, source)


def add_same_size(drawn: Drawn, kind: str, source: str) -> None:
    batch, channels, height, width = shape = drawn.shapes[source]
    same = [name for name, other in drawn.shapes.items() if other == shape]
    match kind:
        case "Eltwise":
            others = drawn.draw(st.lists(st.sampled_from(same), min_size=1, max_size=2))
            operation = drawn.draw(st.sampled_from(["SUM", "PROD", "MAX"]))
            drawn.add(kind, [source, *others], shape, f"eltwise_param {{ operation: {operation} }}")
        case "Concat":
            other = drawn.draw(st.sampled_from(same))
            drawn.add(kind, [source, other], (batch, 2 * channels, height, width))
        case "Slice":
            if channels % 2 == 0:
                name, half = f"slice{len(drawn.shapes)}", (batch, channels // 2, height, width)
                points = f"slice_param {{ slice_point: {channels // 2} }}"  # OpenCV does not count unread tops
                drawn.net.add(kind, name, source, [f"{name}a", f"{name}b"], points)
                drawn.shapes |= {f"{name}a": half, f"{name}b": half}
        case "ShuffleChannel":
            if channels % 2 == 0:
                drawn.add(kind, [source], shape, "shuffle_channel_param { group: 2 }")
        case "Interp":
            drawn.add(kind, [source], (batch, channels, 5, 7), "interp_param { height: 5 width: 7 }")
        case "LRN":
            region = drawn.draw(st.sampled_from(["ACROSS_CHANNELS", "WITHIN_CHANNEL"]))
            drawn.add(kind, [source], shape, f"lrn_param {{ local_size: 3 alpha: 0.3 norm_region: {region} }}")
        case _:
            drawn.add(kind, [source], shape)


@st.composite
def nets(draw: st.DrawFn) -> NetText:
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(3, 9), st.integers(3, 9)))
    drawn = Drawn(draw, NetText({"data": shape}), {"data": shape})
    add_other(drawn, "Convolution", "data")
    for _ in range(draw(st.integers(2, 8))):
        computed = [name for name in drawn.shapes if name != "data"]
        source = draw(st.sampled_from(computed))
        kind = draw(st.sampled_from(IN_PLACE + OTHERS))
        if max(drawn.shapes[source][1:]) > 40:
            continue
        (add_in_place if kind in IN_PLACE else add_other)(drawn, kind, source)
    return drawn.net


@given(net=nets())
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_random_nets_agree_with_opencv(net: NetText, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.mktemp("net")
    agree(net, folder)


@given(net=nets())
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_random_nets_are_valid_and_take_any_batch_size(
    net: NetText, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = net.load(tmp_path_factory.mktemp("net")).model
    onnx.checker.check_model(model.proto, full_check=True)
    shape = net.inputs["data"]
    whole = values(5, *shape[1:], seed=9)
    together = run_all(model, {"data": whole})
    alone = run_all(model, {"data": whole[3:4]})
    for name, array in alone.items():
        assert np.allclose(together[name][3:4], array, rtol=1e-4, atol=1e-5), name
