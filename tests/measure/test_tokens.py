"""Language models, token by token: against sums written out, and a verdict that no distance of outputs gives."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import roundoff
from roundoff.cli import main
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.nodes import make_model
from roundoff.measure.tokens import TokenMeter, token_evaluators, token_inputs
from roundoff.quantize.pipeline import Quantization, QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.evaluators import make_run
from tests.quantize.transforms.test_clamp_mask import Given

WORDS, WIDTH, LENGTH = 48, 32, 40


def language_model(offset: float = 0.0) -> tuple[Model, Given]:
    """A network that knows how often each word follows each other one, and sentences of such words.

    An offset that all words share says nothing of any of them, and makes their scores alike by every distance.
    """
    rng = np.random.default_rng(5)
    table, matrix = rng.normal(size=(WORDS, WIDTH)), rng.normal(size=(WIDTH, WORDS)) * (3.0 / math.sqrt(WIDTH))
    # One row of each block is far larger than the others, which have few codes left then.
    table[:, 0], matrix[0] = table[:, 0] / 8, matrix[0] * 8
    scores = table @ matrix
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    sentences = []
    for _ in range(16):
        words = [int(rng.integers(WORDS))]
        while len(words) < LENGTH:
            words.append(int(rng.choice(WORDS, p=chances[words[-1]])))
        sentences.append({"words": np.array([words], np.int64)})
    held = {"table": table, "matrix": matrix, "offset": np.full(WORDS, offset)}
    nodes = [
        helper.make_node("Gather", ["table", "words"], ["x"], name="embed"),
        helper.make_node("MatMul", ["x", "matrix"], ["y"], name="head"),
        helper.make_node("Add", ["y", "offset"], ["logits"], name="shift"),
    ]
    constants = [numpy_helper.from_array(each.astype(np.float32), name) for name, each in held.items()]
    given = [helper.make_tensor_value_info("words", TensorProto.INT64, [1, LENGTH])]
    result = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, LENGTH, WORDS])]
    proto = make_model(helper.make_graph(nodes, "bigrams", given, result, constants), opset=17)
    return Model(proto, Path("bigrams.onnx"), inside_bytes(proto)), Given(sentences)


def quantized(target: str, offset: float = 0.0) -> Quantization:
    model, samples = language_model(offset)
    return quantize_model(model, samples, QuantizeSettings(load_target(target)))


def _by_hand(feeds: list[dict[str, Any]], ours: list[Any], theirs: list[Any]) -> tuple[float, ...]:
    """nll of both, divergence, share of equal answers and median of the first other one, word by word."""
    costs, others, apart, same, first = [], [], [], [], []
    for feed, left, right in zip(feeds, ours, theirs, strict=True):
        at = None
        for place in range(LENGTH - 1):
            p, q = (
                np.exp(np.float64(each[0, place])) / np.exp(np.float64(each[0, place])).sum()
                for each in (left, right)
            )
            word = feed["words"][0, place + 1]
            costs.append(-math.log(p[word]))
            others.append(-math.log(q[word]))
            apart.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
            same.append(int(p.argmax() == q.argmax()))
            at = place if at is None and not same[-1] else at
        first.append(LENGTH - 1 if at is None else at)
    return (
        float(np.mean(costs)),
        float(np.mean(others)),
        float(np.mean(apart)),
        float(np.mean(same)),
        float(np.median(first)),
    )


def test_scores_are_those_of_sums_written_out() -> None:
    model, samples = language_model()
    rng, run = np.random.default_rng(1), make_run(model)
    feeds = [dict(samples.feed(at)) for at in range(4)]
    ours = [run(feed)["logits"] for feed in feeds]
    theirs = [each + rng.normal(size=each.shape).astype(np.float32) * 0.6 for each in ours]
    meter = TokenMeter()
    for feed, left, right in zip(feeds, ours, theirs, strict=True):
        meter.add(feed, left, right)
    found = meter.result()
    assert found is not None
    wanted = _by_hand(feeds, ours, theirs)
    got = (found.nll_float, found.nll, found.divergence, found.same_top1, found.first_other)
    assert got == pytest.approx(wanted, rel=1e-6)
    assert found.tokens == 4 * (LENGTH - 1)
    assert found.worse == pytest.approx(wanted[1] / wanted[0] - 1)


def test_padding_does_not_count() -> None:
    model, samples = language_model()
    run, feed = make_run(model), dict(samples.feed(0))
    exact = run(feed)["logits"]
    broken = exact.copy()
    broken[0, 20:] = 0
    whole, part = TokenMeter(), TokenMeter()
    whole.add(feed, exact, broken)
    kept = np.ones((1, LENGTH), np.int64)
    kept[0, 20:] = 0
    part.add({**feed, "attention_mask": kept}, exact, broken)
    both = whole.result(), part.result()
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].same_top1 < 1
    assert (both[1].tokens, both[1].same_top1) == (19, 1.0)
    assert both[1].divergence == pytest.approx(0.0, abs=1e-12)


def test_other_networks_are_no_language_models() -> None:
    words, features = np.zeros((2, 8), np.int64), np.zeros((2, 8, 32), np.float32)
    assert token_inputs({"x": features}, features) is None
    assert token_inputs({"x": words[:, :4]}, features) is None
    assert token_inputs({"x": words + 40}, features) is None  # more words than scores: features of tokens
    meter = TokenMeter()
    meter.add({"x": np.arange(16).reshape(2, 8)}, features, features)
    assert meter.result() is None  # it tells no next word


def test_four_bits_that_cost_nll_are_not_fine_however_much_outputs_look_alike() -> None:
    result = quantized("weights-int4", offset=60.0)
    judged = result.best.judged
    assert judged is not None
    assert judged.tokens is not None
    assert judged.tokens.worse > 0.06
    values = judged.agreement[0].score.values
    assert values["cosine"] > 0.999  # which says that all is well
    assert judged.judgement.grade == "lossy"
    again = quantized("weights-int8", offset=60.0).best.judged
    assert again is not None
    assert again.judgement.grade == "fine"


def test_evaluators_that_ship_measure_each_sample_against_the_network_that_came_first() -> None:
    result, (model, samples) = quantized("weights-int4"), language_model()
    from roundoff.graph.insertion import switch_on

    network = switch_on(result.float_model, result.best.numbers.quantizers)
    judged = result.best.judged
    assert judged is not None
    assert judged.tokens is not None
    wanted = {
        "nll": judged.tokens.nll, "kl": judged.tokens.divergence, "token_top1": judged.tokens.same_top1
    }  # fmt: skip
    feeds = [samples.feed(at) for at in range(16)]
    for name, evaluate in token_evaluators().items():
        exact, found = evaluate(make_run(model), feeds), evaluate(make_run(network), feeds)
        assert len(found) == 16
        if name in wanted:
            assert np.mean(found) == pytest.approx(wanted[name], rel=1e-4)
        best = {"nll": judged.tokens.nll_float, "kl": 0.0, "token_top1": 1.0, "first_divergence": LENGTH - 1}
        assert np.mean(exact) == pytest.approx(best[name], rel=1e-6, abs=1e-9)


def test_one_text_that_surprises_does_not_end_a_measurement_and_a_network_that_guesses_does() -> None:
    model, samples = language_model()
    run = make_run(model)
    feeds = [dict(samples.feed(at)) for at in range(8)]
    [name] = feeds[0]
    rare = run(feeds[0])["logits"][0].argmin(axis=-1)
    # Each token is the one that the network expects least after the one before it.
    words = [int(feeds[0][name][0, 0])]
    expected = {int(word): int(least) for word, least in zip(feeds[0][name][0], rare, strict=True)}
    while words[-1] in expected and len(words) < LENGTH:
        words.append(expected[words[-1]])
    surprise = {name: np.array([words[:2] * (LENGTH // 2)], np.int64)}
    evaluate = token_evaluators()["nll"]
    values = evaluate(run, [*feeds, surprise])
    assert values[-1] > max(values[:-1])
    flat = {"logits": np.zeros((1, LENGTH, 64), np.float32)}
    with pytest.raises(ValueError, match="no better than guessing"):
        token_evaluators()["nll"](lambda _: flat, feeds)


def test_a_command_and_its_function_take_them_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import onnx

    monkeypatch.chdir(tmp_path)
    model, samples = language_model(60.0)
    onnx.save(model.proto, "bigrams.onnx")
    np.save("words.npy", np.stack([samples.feed(at)["words"] for at in range(16)]))
    main(["diagnose", "bigrams.onnx", "--target", "weights-int4", "--data", "words.npy", "--evaluator", "nll"])
    said = capsys.readouterr()
    assert "nll" in said.out
    # What is to be typed next can be typed.
    assert "TokenEvaluator" not in said.out + said.err
    found = roundoff.diagnose("bigrams.onnx", target="weights-int4", data="words.npy", evaluator="nll")
    assert found.result.metric is not None
    assert found.result.metric.name == "nll"
    with pytest.raises(roundoff.BadInput, match="nlll"):
        roundoff.diagnose("bigrams.onnx", target="weights-int4", data="words.npy", evaluator="nlll")
