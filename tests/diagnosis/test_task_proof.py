"""The user's metric is part of the proof: who is to blame is who brings it back."""

from itertools import cycle, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime import InferenceSession

import roundoff
from roundoff.core.tensors import Array
from roundoff.diagnosis.investigation import accuracy_metric, evaluator_metric
from roundoff.diagnosis.result import Diagnosis
from roundoff.diagnosis.stages import Scores
from roundoff.diagnosis.study import DiagnoseSettings, diagnose_quantization
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model, load_model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import verbatim
from roundoff.run.evaluators import EvaluationSamples, Evaluator, Run
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.planting import changed, demo, for_target, narrower, numpy_tensor, scaled
from tests.models import conv_net, value, wrapped

CLASSES, WIDTH, COUNT = 10, 24, 96


def classifier(count: int = COUNT) -> tuple[Model, dict[str, Array]]:
    """Products of matrices, and what they are fed."""
    rng = np.random.default_rng(7)
    sizes = [WIDTH] * 5 + [CLASSES]
    nodes, constants, name = [], [], "x"
    for at, (read, written) in enumerate(pairwise(sizes)):
        values = rng.standard_normal((read, written)) * np.sqrt(2 / read)
        constants.append(numpy_tensor(f"w{at}", values.astype(np.float32)))
        # No Relu between them: behind one, random networks give nearly everything to one class.
        written_name = "y" if at == len(sizes) - 2 else f"r{at}"
        nodes.append(helper.make_node("MatMul", [name, f"w{at}"], [written_name], name=f"fc{at}"))
        name = written_name
    proto = wrapped(nodes, [value("x", (1, WIDTH))], [value("y", (1, CLASSES))], constants)
    data = rng.standard_normal((count, WIDTH)).astype(np.float32)
    return model_from_proto(proto, path=Path("classifier.onnx")), {"x": data}


def classes(proto: onnx.ModelProto, data: Array) -> Array:
    session = InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.array([int(session.run(["y"], {"x": row[None]})[0].argmax()) for row in data])


def diagnosed(quantized: QuantizedModel, data: Array) -> tuple[Diagnosis, Array]:
    labels, samples = classes(quantized.float_model.proto, data), ArraySamples({"x": data})
    settings = DiagnoseSettings(metric=accuracy_metric(labels, samples))
    return diagnose_quantization(quantized, samples, settings), labels


def test_a_finding_says_what_it_does_to_the_accuracy_and_the_verdict_what_all_do() -> None:
    model, arrays = classifier()
    quantized, _ = for_target(model, arrays)
    broken = changed(changed(quantized, "r1", scaled(0.1)), "r3", scaled(60.0))
    found, labels = diagnosed(broken, arrays["x"])
    assert found.kind == "culprits"
    assert {each.tensors[0] for each in found.accused[:2]} == {"r1", "r3"}
    model = broken.float_model
    for each in found.accused[:2]:
        [measure] = each.of_task
        assert measure.samples == COUNT
        # Put back alone where all else is right.
        others = changed(quantized, each.tensors[0], scaled(0.1 if each.tensors[0] == "r1" else 60.0))
        alone = switch_on(model, others.quantizers)
        right = float((classes(alone.proto, arrays["x"]) == labels).mean())
        assert abs(measure.before - right) <= 3 / COUNT  # ranges are those of other samples than calibration saw
        assert measure.after > measure.before
    now = float((classes(switch_on(model, broken.quantizers).proto, arrays["x"]) == labels).mean())
    assert f"top-1 accuracy {100 * now:.1f} %," in str(found.verdict)
    assert "(float 100.0 %)" in str(found.verdict)


def test_places_are_looked_for_until_the_accuracy_is_back() -> None:
    """Outputs may pass their limits and yet choose other classes."""
    model, arrays = classifier()
    quantized, _ = for_target(model, arrays)
    broken = changed(quantized, "w4", narrower(3))
    found, _ = diagnosed(broken, arrays["x"])
    assert found.kind == "culprits"
    assert found.accused[0].nodes[0] == "fc4"
    assert found.accused[0].of_task[0].improved


def test_a_metric_that_does_not_drop_is_no_part_of_a_proof() -> None:
    model, arrays = classifier()
    quantized, _ = for_target(model, arrays)
    found, _ = diagnosed(quantized, arrays["x"])
    assert found.kind == "healthy"
    assert not [each for each in found.findings if each.of_task]


def kept_by(quantized: QuantizedModel, data: Array, count: int) -> Array:
    """The first samples whose class is the same in both networks."""
    networks = quantized.float_model, switch_on(quantized.float_model, quantized.quantizers)
    ours, theirs = (classes(each.proto, data) for each in networks)
    kept: Array = data[ours == theirs][:count]
    assert len(kept) == count
    return kept


def test_an_accuracy_that_few_samples_cannot_show_to_be_kept_excuses_no_outputs() -> None:
    """The word is that of the same samples without labels; what is kept on many says so, not 'as expected'."""
    model, arrays = classifier(600)
    broken = for_target(model, arrays)[0]
    for at in range(5):
        broken = changed(broken, f"w{at}", narrower(3))
    data = kept_by(broken, arrays["x"], 240)
    found, _ = diagnosed(broken, data[:16])
    plain = diagnose_quantization(broken, ArraySamples({"x": data[:16]}))
    assert found.judgement is not None
    assert found.judgement.grade == "lossy"
    assert found.kind == plain.kind != "healthy"
    assert str(found.verdict) == str(plain.verdict)
    found, _ = diagnosed(broken, data)
    # 240 that all stay right: by Agresti and Min at most 1.96 / 242 = 0.8 % are lost.
    assert found.kind == "healthy"
    assert "top-1 accuracy is kept, 100.0 % to 100.0 %" in str(found.verdict)
    assert "as expected" not in str(found.verdict)


def test_there_are_as_many_labels_as_rows_unless_samples_were_cut() -> None:
    model, arrays = classifier()
    labels, samples = classes(model.proto, arrays["x"]), ArraySamples({"x": arrays["x"][:8]})
    for given in (labels, labels[:7]):
        with pytest.raises(BadInput, match=f"There are {len(given)} labels for 8 rows"):
            accuracy_metric(given, samples).values(model)
    assert accuracy_metric(labels, samples, cut=True).values(model).tolist() == [1.0] * 8
    options: dict[str, Any] = {"target": "generic-int8", "labels": labels}
    data = arrays["x"][:12]
    with pytest.raises(BadInput, match="There are 96 labels for 12 rows"):
        roundoff.diagnose(model.proto, data=data, **options)
    assert roundoff.diagnose(model.proto, data=arrays["x"], samples=12, **options).result.samples == 12


def test_the_verdict_has_the_figure_of_the_proof_it_names() -> None:
    """Scales of what a weight writes heal less than those of what it reads: the proof's figure is told."""
    rng = np.random.default_rng(3)
    first, second = (rng.standard_normal((WIDTH, written)) / np.sqrt(WIDTH) for written in (WIDTH, CLASSES))
    # Next to nothing is multiplied by what sets the scale, and in some columns only.
    first[:, 2] *= 1e-4
    second[2, :4] = 60
    weights = first, second
    constants = [numpy_tensor(f"w{at}", each.astype(np.float32)) for at, each in enumerate(weights)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["r"], name="fc0"),
        helper.make_node("MatMul", ["r", "w1"], ["y"], name="fc1"),
    ]
    proto = wrapped(nodes, [value("x", (1, WIDTH))], [value("y", (1, CLASSES))], constants)
    data = rng.standard_normal((COUNT, WIDTH)).astype(np.float32)
    model = model_from_proto(proto, path=Path("unequal.onnx"))
    quantized, samples = for_target(model, {"x": data}, "generic-int8-per-tensor")
    found = diagnose_quantization(quantized, samples)
    [finding] = found.accused
    proof = finding.measures[0]
    assert (finding.nodes[0], finding.cause) == ("fc1", "outlier-channel")
    assert proof.after > proof.before + 20
    assert f"output SQNR {proof.before:.1f} dB, {proof.after:.1f} dB without" in str(found.verdict)
    assert "adds up" not in str(found.verdict)


def test_a_network_that_is_right_does_not_guess_where_one_class_has_most_samples() -> None:
    model, arrays = classifier()
    labels = classes(model.proto, arrays["x"])
    most = np.bincount(labels).argmax()
    others = np.flatnonzero(labels != most)[: np.count_nonzero(labels == most) // 3]
    kept = np.sort(np.concatenate([np.flatnonzero(labels == most), others]))
    data = arrays["x"][kept]
    quantized, _ = for_target(model, {"x": data})
    found, right = diagnosed(quantized, data)
    # Always naming the commonest class would be right on three of four.
    assert np.mean(right == most) > 2 / 3
    assert found.kind == "healthy", str(found.verdict)


def test_what_a_network_scores_that_guesses() -> None:
    def guesses(chance: float | None, score: float) -> bool:
        return Scores(verbatim("accuracy"), True, score, score, chance).guesses

    assert guesses(0.1, 0.14)
    assert not guesses(0.1, 0.16)
    assert guesses(0.7, 0.75)
    assert not guesses(0.7, 0.8)
    assert not guesses(0.97, 1.0)
    assert not guesses(None, 0.0)


def test_an_evaluator_that_alternates_is_found_out(tmp_path: Path) -> None:
    onnx.save(conv_net(), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    turns = cycle((0.5, 0.9))
    fickle = SimpleNamespace(name="fickle", higher_is_better=True, measure=lambda *_: np.array(next(turns)))
    metric = evaluator_metric(cast("Any", fickle), ArraySamples({"image": np.zeros((2, 3, 8, 8), np.float32)}))
    # Asked about the float network, another one, and the float network again it seems to repeat itself.
    known = metric.values(model)
    metric.values(model)
    assert metric.doubts is not None
    assert [each.kind for each in metric.doubts(model, known)] == ["unrepeatable"]


@pytest.mark.parametrize("kind", ["mean", "ranks", "position"])
def test_a_metric_of_one_number_is_asked_for_chance_where_samples_can_be_left_out(kind: str) -> None:
    """The share of right answers has a value for each sample, a median only groups; labels by position neither."""
    quantized, samples = demo()
    count = len(samples.names)

    def evaluate(run: Run, given: EvaluationSamples) -> float:
        sums = [float(next(iter(run(feed).values())).sum()) for feed in given]
        if kind == "position":
            return float(np.dot(sums, np.arange(len(sums))))
        return float(np.mean(sums) if kind == "mean" else np.median(sums))

    metric = evaluator_metric(Evaluator("score", True, Path("score.py"), evaluate), samples)
    networks = quantized.float_model, switch_on(quantized.float_model, quantized.quantizers)
    known = metric.values(networks[0]), metric.values(networks[1])
    assert [each.size for each in known] == [count if kind == "mean" else 1] * 2
    change = metric.change(*networks, known)
    assert (change.chance is None) == (kind == "position")
    assert change.loss == pytest.approx(known[0].mean() - known[1].mean())
