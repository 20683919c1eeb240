"""What a kernel does instead is found by trying known wrong ways on the device's own inputs."""

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.subject import subject
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from roundoff.diagnosis.devices.kernels import fit as _tables  # noqa: F401 - declares the tables
from roundoff.diagnosis.devices.kernels.kernel import KERNELS, DeviceKernel, KernelNode
from roundoff.diagnosis.devices.kernels.results import ResultSample, fitted_results
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.graph.load import model_from_proto
from roundoff.graph.nodes import make_model
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps, diagnosed, planted

NAMED = {
    ("operation-bias-missing", "plain"): "Conv adds no bias",
    ("operation-kernel-flipped", "plain"): "Conv flips its kernels",
    ("operation-activation-missing", "plain"): "Relu is left out",
    ("operation-pooling-wrong", "residual"): "GlobalMaxPool is computed in place of GlobalAveragePool",
    ("operation-padding-one-side", "residual"): "Conv has all its padding at the end",
    ("operation-tile-zero", "plain"): "is zero",
    ("operation-tile-stale", "plain"): "is that of the sample before",
    ("operation-result-wraps", "plain"): "results wrap around every",
    ("operation-sums-bfloat16", "plain"): "Conv adds up its products in bfloat16",
    ("operation-sums-float16", "temporal"): "Conv adds up its products in float16",
    ("operation-weights-coarse", "inverted"): "Conv computes with weights of",
}


@pytest.mark.parametrize(("place", "told"), NAMED.items(), ids=[each[0] for each in NAMED])
def test_what_the_kernel_does_is_said(place: tuple[str, str], told: str) -> None:
    case = planted(*place)
    found = diagnosed(case)
    (finding,) = found.accused
    assert finding.cause == "kernel-fault"
    assert {*finding.nodes, *finding.tensors} & case.truths[0].nodes
    assert told in str(finding.summary)
    assert finding.measures[0].improved
    assert finding.summary.within("zh") != str(finding.summary)


def test_numbers_of_a_fit_are_those_of_the_dump() -> None:
    network = subject("residual", 0)
    name = "stage2/add_out"
    node = network.nodes[network.producer[name]]
    rows = Device(network, patches={name: lambda _array, _index, held: held[node.input[0]]}).run(
        few_samples(network)
    )
    found = diagnose_device(network.model, ArraySamples(few_samples(network)), HeldDumps(rows))
    (finding,) = found.accused
    assert str(finding.summary).startswith("Add gives its input 1 alone, without the other")
    # It is chosen by the first half of the four samples that are held, and judged by the others.
    right = np.concatenate([row[node.input[0]] + row[node.input[1]] for row in rows[2:4]]).astype(np.float64)
    wrote = np.concatenate([row[name] for row in rows[2:4]]).astype(np.float64)
    db = 10 * np.log10(np.square(wrote).sum() / np.square(wrote - right).sum())
    assert finding.measures[0].before == pytest.approx(db, abs=1e-4)
    assert finding.measures[0].after == np.inf
    assert finding.measures[0].samples == 2
    assert "reproduces 100.0 %" in str(finding.summary)


@pytest.mark.parametrize("count", [1, 4])
def test_a_way_chosen_on_the_only_sample_says_so(count: int) -> None:
    network = subject("residual", 0)
    name = "stage2/add_out"
    node = network.nodes[network.producer[name]]
    samples = {each: array[:count] for each, array in few_samples(network).items()}
    rows = Device(network, patches={name: lambda _array, _index, held: held[node.input[0]]}).run(samples)
    found = diagnose_device(network.model, ArraySamples(samples), HeldDumps(rows))
    (finding,) = (each for each in found.findings if each.cause == "kernel-fault")
    assert finding.intervention is not None
    said = str(finding.intervention)
    assert ("chosen on other samples" in said) == (count > 1)
    assert ("chosen on the only sample" in said) == (count == 1)
    assert ("仅有的一个样本" in finding.intervention.within("zh")) == (count == 1)
    # The same kernel in another form is no next best way.
    following = re.search(r"the next best known way gives (\S+) dB", said)
    assert following is None or float(following[1]) < 100


def test_a_kernel_that_nobody_knows_is_still_accused() -> None:
    network = subject("plain", 0)
    rng = np.random.default_rng(7)
    wave = rng.standard_normal(network.values["conv3_out"].shape[1:]).astype(np.float32)
    device = Device(
        network, patches={"conv3_out": lambda array, _index, _held: array * (1 + np.sin(9 * array) * wave)}
    )
    rows = device.run(few_samples(network))
    found = diagnose_device(network.model, ArraySamples(few_samples(network)), HeldDumps(rows))
    (finding,) = found.accused
    assert finding.tensors == ("conv3_out",)
    assert "known wrong ways fits" in str(finding.summary)
    # The control: what else the device computed is right.
    assert finding.measures[0].after == 0
    assert f"the {len(rows[0]) - 2} tensors of the device" in str(finding.intervention)


def test_two_dumps_that_are_wrong_in_the_same_way_do_not_flow_on() -> None:
    network = subject("plain", 0)
    rows = Device(network).run(few_samples(network))
    for row in rows:
        for name in ("conv2_out", "conv2/relu_out"):
            row[name] = row[name] * np.float32(0.5)
    found = diagnose_device(network.model, ArraySamples(few_samples(network)), HeldDumps(rows))
    assert {each.tensors[0] for each in found.accused} == {"conv2_out", "conv2/relu_out"}
    assert all("in the dump only" in str(each.summary) for each in found.accused)
    assert str(found.verdict).startswith("the device computes what it should")


def single(
    op_type: str, shapes: tuple[tuple[int, ...], ...], *constants: np.ndarray, **named: object
) -> DeviceKernel:
    """One node as a kernel."""
    reads = tuple(f"x{at}" for at in range(len(shapes)))
    held = {f"c{at}": each for at, each in enumerate(constants)}
    node = helper.make_node(op_type, [*reads, *held], ["y"], name="node", **named)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(reads, shapes, strict=True)
    ]
    weights = [numpy_helper.from_array(each, name) for name, each in held.items()]
    graph = helper.make_graph(
        [node], "one", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights
    )
    model = model_from_proto(make_model(graph), path=Path("one.onnx"))
    return DeviceKernel(model, tuple(model.proto.graph.node), held, reads, "y")


RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


EXAMPLES = {
    "Conv": single("Conv", ((1, 4, 8, 8),), noise(6, 4, 3, 3), noise(6), pads=[1, 1, 1, 1]),
    "grouped": single("Conv", ((1, 4, 8, 8),), noise(8, 2, 3, 3), noise(8), pads=[1, 1, 1, 1], group=2),
    "dilated": single("Conv", ((1, 2, 8, 8),), noise(2, 2, 3, 3), pads=[2, 2, 2, 2], dilations=[2, 2]),
    "Gemm": single("Gemm", ((1, 6),), noise(6, 5), noise(5)),
    "MatMul": single("MatMul", ((1, 5, 5), (1, 5, 5))),
    "Add": single("Add", ((1, 4, 3, 3), (1, 4, 1, 1))),
    "Concat": single("Concat", ((1, 4, 3, 3), (1, 4, 3, 3)), axis=1),
    "Softmax": single("Softmax", ((1, 4, 5),), axis=-1),
    "ReduceMean": single("ReduceMean", ((1, 4, 4, 4),), axes=[2], keepdims=1),
    "MaxPool": single("MaxPool", ((1, 3, 8, 8),), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "AveragePool": single("AveragePool", ((1, 3, 8, 8),), kernel_shape=[2, 2], strides=[2, 2]),
    "BatchNormalization": single(
        "BatchNormalization", ((1, 4, 3, 3),), noise(4), noise(4), noise(4), noise(4) ** 2
    ),
    "Flatten": single("Flatten", ((1, 3, 2, 2),)),
    "Transpose": single("Transpose", ((1, 2, 3, 4),), perm=[0, 2, 1, 3]),
    "HardSwish": single("HardSwish", ((1, 9),)),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_most_wrong_ways_run_and_differ_from_the_right_one(kind: str) -> None:
    kernel = EXAMPLES[kind]
    shapes = {
        each.name: [d.dim_value for d in each.type.tensor_type.shape.dim]
        for each in kernel.model.proto.graph.input
    }
    feed = {name: noise(*shapes[name]) for name in kernel.reads}
    right = kernel.run([feed])
    assert right is not None
    at = KernelNode(kernel, kernel.nodes[0], {**feed, **right[0]}, {})
    ways = [each for table in (*KERNELS["*"], *KERNELS[at.op]) for each in table(at)]
    ran = 0
    for text, changed in ways:
        assert "{" not in text.within("en")
        assert text.within("zh") != text.within("en")
        made = changed.run([feed])
        if made is not None and made[0]["y"].shape == right[0]["y"].shape:
            ran += not np.allclose(made[0]["y"], right[0]["y"], atol=1e-6)
    assert ran >= 2
    # The kernel itself is never changed.
    again = kernel.run([feed])
    assert again is not None
    assert np.array_equal(again[0]["y"], right[0]["y"])


@given(st.integers(0, 1000), st.floats(0.2, 0.9))
def test_a_limit_and_a_period_are_read_from_some_samples_and_hold_for_others(seed: int, part: float) -> None:
    rng = np.random.default_rng(seed)
    right = [rng.standard_normal((1, 4, 6, 6)).astype(np.float32) for _ in range(3)]
    limit = np.float32(part * np.abs(right[0]).max())

    def explained(spoil: object) -> float:
        samples = [
            ResultSample(spoil(each), each, np.asarray(1e-5), ())  # type: ignore[operator]
            for each in right
        ]
        left = [np.abs(way(samples[2]) - samples[2].found).max() for _, way in fitted_results(samples[:2])]
        return float(min(left, default=np.inf))

    assert explained(lambda x: np.clip(x, -limit, limit)) < 1e-5 or part > 0.6
    box = (slice(None), slice(1, 3), slice(2, 5), slice(0, 3))

    def holed(x: np.ndarray) -> np.ndarray:
        made = x.copy()
        made[box] = 0
        return made

    assert explained(holed) == 0
