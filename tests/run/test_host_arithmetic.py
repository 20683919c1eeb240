from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from roundoff.run.host_arithmetic import FusedPath, HostArithmetic, cpu_features, measure_host
from tests.models import value, wrapped

EXACT = HostArithmetic(
    onnxruntime="1.2.3",
    machine="x86_64",
    features=("avx2", "avx512_vnni"),
    threads=4,
    fused=(FusedPath("Conv", "whole range", ("QLinearConv",), 100, 0, 0, 0),),
    largest_product=1.0,
    basic_is_equal=True,
    threads_are_equal=True,
    batches_are_equal=True,
)


def test_what_is_measured_here_hangs_together() -> None:
    host = measure_host()

    assert host.onnxruntime == ort.__version__
    assert [(path.name, path.data) for path in host.fused[:2]] == [
        ("Conv", "bell-shaped"),
        ("Conv", "whole range"),
    ]
    assert {path.name for path in host.fused} == {"Conv", "Gemm", "MatMul", "network"}
    for path in host.fused:
        assert path.kernels, f"{path.name} was not fused"
        assert (path.moved > 0) == (path.largest > 0)
        assert 0 <= path.moved <= path.elements
    assert host.saturates == (host.largest_product < 1)
    assert host.reference_is_stable
    assert measure_host() is host


def test_saturation_is_what_the_processor_does_to_single_pairs() -> None:
    """Products of one pair, with neighbours that cancel what is cut off, in the smallest possible model."""
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"], "node")
    shapes = value("x", (1, 2), TensorProto.UINT8), value("w", (2, 1), TensorProto.INT8)
    model = wrapped([node], shapes, [value("y", None, TensorProto.INT32)])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x, w = np.full((1, 2), 255, np.uint8), np.full((2, 1), 127, np.int8)

    total = int(session.run(None, {"x": x, "w": w})[0].item())

    assert total == (32767 if measure_host().saturates else 2 * 255 * 127)


def test_features_are_those_of_the_first_processor(tmp_path: Path) -> None:
    intel, arm = tmp_path / "intel", tmp_path / "arm"
    intel.write_text("processor\t: 0\nflags\t\t: fpu avx2 amx_int8 sse\n\nprocessor : 1\nflags : avx512f\n")
    arm.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n")

    assert cpu_features(intel) == ("avx2", "amx_int8")
    assert cpu_features(arm) == ("asimddp", "i8mm")
    assert cpu_features(tmp_path / "missing") == ()


def test_a_line_for_the_record() -> None:
    moving = replace(EXACT, features=(), fused=(replace(EXACT.fused[0], moved=3, largest=1),), largest_product=0.5)

    assert EXACT.summary() == (
        "onnxruntime 1.2.3 on x86_64 (avx2 avx512_vnni): fused int8 kernels equal the graph, u8 x s8 is exact"
    )
    assert moving.summary() == (
        "onnxruntime 1.2.3 on x86_64 (unknown instructions): "
        "fused int8 kernels move results by up to 1 step, u8 x s8 saturates"
    )
