"""No two commands contradict each other on one model, chip and data."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import roundoff
from roundoff.diagnosis.loss import LossMeter
from roundoff.graph.interface import OutputPart
from roundoff.graph.nodes import make_model
from roundoff.measure.rows import RowMeter
from roundoff.measure.verdicts import WORDS
from roundoff.studies.partial.scores import OutputTally, measure_chunk
from tests.models import save, value, wrapped

_TARGETS = ("generic-int8", "generic-int8-per-tensor")


def _array(rng: np.random.Generator, name: str, *shape: int, size: float = 1.0) -> Any:
    fan = max(1, int(np.prod(shape[1:])))
    return numpy_helper.from_array((rng.normal(size=shape) * size / np.sqrt(fan)).astype(np.float32), name)


def _plain(rng: np.random.Generator, outlier: float) -> Any:
    """Two convolutions and a classifier; one channel of the first may be far larger than the others."""
    first = rng.normal(size=(8, 1, 3, 3)).astype(np.float32) / 3
    first[3] *= outlier
    weights = [
        numpy_helper.from_array(first, "w1"),
        _array(rng, "w2", 8, 8, 3, 3),
        _array(rng, "w3", 5, 128),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="conv2", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["d"], name="relu2"),
        helper.make_node("Flatten", ["d"], ["e"], name="flat"),
        helper.make_node("Gemm", ["e", "w3"], ["y"], name="head", transB=1),
    ]
    return wrapped(nodes, [value("x", (1, 1, 8, 8))], [value("y", (1, 5))], weights)


def _joined(rng: np.random.Generator, outlier: float) -> Any:
    """Two branches whose results are joined to one output, the one far larger than the other."""
    weights = [_array(rng, "w1", 4, 1, 3, 3), _array(rng, "w2", 4, 1, 3, 3, size=outlier)]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["small"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "w2"], ["large"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["small", "large"], ["y"], name="join", axis=1),
    ]
    return wrapped(nodes, [value("x", (1, 1, 8, 8))], [value("y", (1, 8, 8, 8))], weights)


def _with_classes(rng: np.random.Generator, outlier: float) -> Any:
    """The classifier with its class numbers beside the scores."""
    model = _plain(rng, outlier)
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["best"], name="best", axis=1, keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("best", TensorProto.INT64, [1]))
    return model


def _places(rng: np.random.Generator, outlier: float) -> Any:
    """The places of the two highest scores alone."""
    model = _plain(rng, outlier)
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "two"))
    model.graph.node.append(helper.make_node("TopK", ["y", "two"], ["top", "places"], name="top", axis=1))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("places", TensorProto.INT64, [1, 2]))
    return model


def _truths(rng: np.random.Generator, outlier: float) -> Any:
    """Whether each score is above a limit."""
    model = _plain(rng, outlier)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "limit"))
    model.graph.node.append(helper.make_node("Greater", ["y", "limit"], ["yes"], name="yes"))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("yes", TensorProto.BOOL, [1, 5]))
    return model


_GRADES = {"pass": "fine", "fail": "lossy", "incomplete": "incomplete", "no_evidence": "no_evidence"}


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("outlier", [1.0, 60.0, 400.0])
@pytest.mark.parametrize("family", [_plain, _joined, _with_classes, _places, _truths])
def test_five_commands_never_contradict(family: Any, outlier: float, target: str, tmp_path: Path) -> None:
    rng = np.random.default_rng([29, int(outlier), len(target)])
    model = save(family(rng, outlier), tmp_path / "m.onnx")
    data = rng.normal(size=(12, 1, 8, 8)).astype(np.float32)
    found = _words(model, data, target)
    quantized = roundoff.quantize(model, target=target, data=data)
    assert quantized.document.judgement is not None
    grade = quantized.document.judgement.grade
    partial = roundoff.partial(model, target=target, data=data)
    # Whoever has nothing to do is content with what was judged, and nobody else leaves nothing to do.
    nothing = partial.result.knee == 0 and partial.exit_code == 0
    assert nothing is (grade == "fine"), (partial.result.knee, grade, found)
    quantized.save(tmp_path / "out")
    [file] = (tmp_path / "out").glob("*_fake_quant_model.onnx")
    compared = roundoff.compare(model, file, data=data)
    state = _GRADES[compared.result.state]
    # A tensor within may fail where the outputs are fine; nothing passes that is not.
    assert state == grade or (state == "lossy" and compared.result.verdict.failed), (state, grade)


def _words(model: Path, data: np.ndarray, target: Any) -> dict[str, tuple[str, bool]]:
    quantized = roundoff.quantize(model, target=target, data=data)
    layers = roundoff.layers(model, target=target, data=data)
    diagnosis = roundoff.diagnose(model, target=target, data=data)
    assert quantized.document.judgement is not None
    grades = {quantized.document.judgement.grade, layers.result.judgement.grade}  # type: ignore[union-attr]
    assert len(grades) == 1
    [grade] = grades
    words = {"fine": "fine", "lossy": "lossy", "incomplete": "incomplete", "no_evidence": "not_enough_evidence"}
    found = {"quantize": words[grade], "layers": layers.result.verdict.kind, "diagnose": diagnosis.result.kind}
    for command, word in found.items():
        assert grade in WORDS[command][word], (command, word, grade)
    good = {"quantize": quantized.exit_code, "layers": layers.exit_code, "diagnose": diagnosis.exit_code}
    return {command: (word, good[command] == 0) for command, word in found.items()}


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("outlier", [1.0, 30.0, 400.0])
@pytest.mark.parametrize("family", [_plain, _joined])
def test_words_never_contradict(family: Any, outlier: float, target: str, tmp_path: Path) -> None:
    rng = np.random.default_rng([17, int(outlier), len(target)])
    model = save(family(rng, outlier), tmp_path / "m.onnx")
    data = rng.normal(size=(9, 1, 8, 8)).astype(np.float32)
    found = _words(model, data, target)
    words = {word for word, _ in found.values()}
    assert not (words & {"healthy"} and words & {"lossy", "distributed"})
    # Whoever says that all is well leaves with 0, and nobody else does.
    for command, (word, good) in found.items():
        assert good is (word in ("fine", "healthy")), (command, word)


def _at_the_limit(target: str, data: np.ndarray, folder: Path) -> tuple[Path, Path]:
    """Two networks that differ by a fifth of a per cent in one branch, the one just fine, the other just lossy."""
    low, high = 1.0, 4000.0
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        model = save(_joined(np.random.default_rng(31), middle), folder / "m.onnx")
        judgement = roundoff.quantize(model, target=target, data=data).document.judgement
        assert judgement is not None
        low, high = (middle, high) if judgement.grade == "fine" else (low, middle)
    fine, lossy = (save(_joined(np.random.default_rng(31), end), folder / f"{end}.onnx") for end in (low, high))
    return fine, lossy


@pytest.mark.parametrize(("target", "count"), [("generic-int8", 8), ("rknn", 50), ("onnxruntime", 100)])
def test_words_agree_right_at_the_limit(target: str, count: int, tmp_path: Path) -> None:
    """Also of more samples than are judged on."""
    data = np.random.default_rng(count).normal(size=(count, 1, 8, 8)).astype(np.float32)
    fine, lossy = (_words(model, data, target) for model in _at_the_limit(target, data, tmp_path))
    assert fine["quantize"] == ("fine", True)
    assert fine["layers"][1] or fine["layers"][0] == "local"
    assert fine["diagnose"][1] or fine["diagnose"][0] == "culprits"
    assert lossy["quantize"] == ("lossy", False)
    assert not any(good for _, good in lossy.values())


SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the networks beside the checkout are not there")
@pytest.mark.parametrize("target", ["generic-int8", "generic-int8-per-tensor"])
@pytest.mark.parametrize("count", [8, 50])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlperf_tiny/pretrainedResnet.onnx", (3, 32, 32)),
        ("repvgg_fmnist/repvgg_fmnist_deploy.onnx", (1, 28, 28)),
    ],
)
def test_words_agree_on_real_networks(name: str, shape: tuple[int, ...], count: int, target: str) -> None:
    pixels = (
        np.load(SHARED / "data" / "cifar10_test_part.npz")["x"][:count].transpose(0, 3, 1, 2).astype(np.float32)
    )
    data = pixels if shape[0] == 3 else pixels.mean(axis=1, keepdims=True)[..., :28, :28] / 255
    _words(SHARED / "models" / name, np.ascontiguousarray(data, np.float32), target)


@pytest.mark.parametrize("kind", ["nan", "zero", "single", "same"])
def test_nothing_good_is_said_on_samples_that_tell_nothing(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(23)
    model = save(_plain(rng, 1.0), tmp_path / "m.onnx")
    data = rng.normal(size=(12, 1, 8, 8)).astype(np.float32)
    if kind == "nan":
        data[4, 0, 2, 2] = np.nan
    elif kind == "zero":
        data[:] = 0
    data = {"single": data[:1], "same": np.repeat(data[:1], 5, axis=0)}.get(kind, data)
    found = _words(model, data, "generic-int8")
    assert not any(good or word in ("fine", "healthy") for word, good in found.values()), found


def test_indices_are_told_by_the_share_that_is_equal(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["scores"], name="head", transB=1),
        helper.make_node("ArgMax", ["scores"], ["best"], name="best", axis=1, keepdims=0),
    ]
    outputs = [helper.make_tensor_value_info("best", TensorProto.INT64, [1])]
    model = save(wrapped(nodes, [value("x", (1, 32))], outputs, [_array(rng, "w", 500, 32)]), tmp_path / "m.onnx")
    data = rng.normal(size=(40, 32)).astype(np.float32)
    found = roundoff.quantize(model, target="generic-int8", data=data[:, None])
    [agreement] = found.result.best.agreement
    assert set(agreement.score.values) == {"equal_share"}
    assert agreement.same_top1 is None
    text = " ".join(str(found).split())
    assert f"best: {100 * agreement.score.values['equal_share']:.1f} % of its indices are equal" in text


def test_indices_of_an_output_are_counted_as_they_are() -> None:
    ours, theirs = np.array([[7, 3, 1]]), np.array([[7, 1, 3]])
    tally = OutputTally(1, [])
    tally.add(measure_chunk(RowMeter([]), [ours], [[theirs]], ["a"]), 0)
    # The first of a row is the best one, as TopK gives them.
    assert tally.scores() == {"same_top1": 1.0}
    meter = LossMeter([OutputPart("best")])
    meter.add({"best": ours}, {"best": theirs})
    assert meter.loss().top1 == 1.0
    # Two of three are lost, however far apart they are.
    assert meter.loss().ratios.tolist() == pytest.approx([2 / 3])


def test_a_rule_means_the_same_where_it_is_asked_for_and_where_it_is_searched_from(tmp_path: Path) -> None:
    """Softmax in float: the file that quantize builds and the first that tune does quantize the same tensors."""
    rng = np.random.default_rng(5)
    weights = {name: 0.3 * rng.standard_normal(shape) for name, shape in (("wk", (8, 8)), ("wo", (8, 5)))}
    nodes = [
        helper.make_node("MatMul", ["x", "wk"], ["k"], name="key"),
        helper.make_node("Softmax", ["k"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "wo"], ["y"], name="out"),
    ]
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 5])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    onnx.save(make_model(graph, opset=17), tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", rng.standard_normal((24, 6, 8)).astype(np.float32))
    asked: dict[str, Any] = {"data": tmp_path / "x.npy", "target": "generic-int8", "set": {"softmax": "float"}}
    roundoff.quantize(tmp_path / "net.onnx", **asked).save(tmp_path / "quantize")
    roundoff.tune(tmp_path / "net.onnx", **asked).save(tmp_path / "tune")
    files = [next((tmp_path / name).glob("*fake_quant*.onnx")) for name in ("quantize", "tune")]
    graphs = [onnx.load(file).graph for file in files]
    inserted = [[each.input[0] for each in made.node if each.op_type == "QuantizeLinear"] for made in graphs]
    assert inserted[0] == inserted[1]
