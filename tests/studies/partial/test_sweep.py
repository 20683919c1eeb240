"""More and more of a network left in float."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.quantizers import SwitchedSubject
from roundoff.core.tensors import Array
from roundoff.demo import load_split
from roundoff.errors import BadInput
from roundoff.graph.insertion import bake_quantizers, insert_quantizers
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.run.evaluators import EvaluationSamples, Evaluator, Run
from roundoff.studies.partial.result import PartialSettings, Raise
from roundoff.studies.partial.study import named_subjects, sweep
from roundoff.studies.sensitivity.study import ranked_subjects
from tests.quantized import with_scale_times
from tests.run.samples import MemorySamples
from tests.studies.accumulate.brute_force import cosine, sqnr_db, tensors_of
from tests.studies.layers.support import demo_network
from tests.studies.sensitivity.support import network

SPOILT = ("block3/relu", "block1/relu")


def spoilt_demo(rows: int = 1) -> tuple[QuantizedModel, MemorySamples, Array]:
    """The demo's network with two activations that are clipped; test images in samples of so many, and labels."""
    quantized, _ = demo_network()
    images, labels = load_split("test")
    feeds = [{"image": images[start : start + rows]} for start in range(0, 60, rows)]
    return with_scale_times(quantized, SPOILT, 0.15), MemorySamples(feeds), labels[:60]


def brute_force(
    quantized: QuantizedModel, samples: MemorySamples, names: Sequence[str], labels: Array
) -> Mapping[str, float]:
    """Scores with some quantizers left out, from whole runs and in plain numpy."""
    off = frozenset(names)
    on = [each for each in quantized.quantizers if each.name not in off]
    model = quantized.float_model
    left, right = (
        [rows[0] for rows in tensors_of(each, samples.feeds, ["logits"])]
        for each in (model, insert_quantizers(model, on))
    )
    both = np.concatenate(left), np.concatenate(right)
    guesses = [[rows.reshape(-1, 10).argmax(axis=1) for rows in side] for side in (left, right)]
    ours, theirs = (np.concatenate(side) for side in guesses)
    return {
        "cosine": cosine(*both),
        "sqnr_db": sqnr_db(*both),
        "same_top1": float(np.mean(ours == theirs)),
        "accuracy": float(np.mean(theirs == labels)),
    }


@pytest.mark.parametrize("rows", [1, 4])
def test_scores_equal_brute_force(rows: int) -> None:
    quantized, samples, labels = spoilt_demo(rows)
    subjects = named_subjects(quantized, ["block4/depthwise", "block2/depthwise", "block1/depthwise", "logits"])
    found = sweep(quantized, samples, subjects, PartialSettings(labels=labels))
    assert [step.subject for step in found.steps] == ["", *(subject.name for subject in subjects)]
    changed: list[str] = []
    for step in found.steps:
        changed += step.quantizers
        expected = brute_force(quantized, samples, changed, labels)
        assert {"accuracy": step.score, **step.scores} == pytest.approx(dict(expected), rel=1e-5)
    assert (
        found.float_score
        == brute_force(quantized, samples, [q.name for q in quantized.quantizers], labels)["accuracy"]
    )
    assert found.steps[0].share == found.steps[0].score / found.float_score


def test_the_nodes_behind_the_spoilt_activations_are_found() -> None:
    quantized, samples, labels = spoilt_demo()
    subjects, ranking = ranked_subjects(quantized, samples, "activation")
    assert {subject.tensor for subject in subjects[:2]} == set(SPOILT)
    assert len(ranking.rankings["activation"]) == len(subjects)
    found = sweep(quantized, samples, subjects, PartialSettings(labels=labels, top=5))
    assert found.steps[0].score < 0.8 * found.float_score
    assert found.knee == found.levels_off == 2
    assert found.chosen == tuple(subject.name for subject in subjects[:2])
    assert len(found.subjects) == len(subjects)


@pytest.mark.parametrize("to", ["s16", "u16"])
def test_16_bits_keep_the_range_so_that_clipping_stays(to: Raise) -> None:
    quantized, samples, _ = spoilt_demo()
    clean, _ = demo_network()
    everything = [SwitchedSubject("everything", "group", tuple(each.name for each in quantized.quantizers))]
    fine = sweep(clean, samples, everything, PartialSettings(to=to, score="mean_sqnr_db"))
    clipped = sweep(quantized, samples, everything, PartialSettings(to=to, score="mean_sqnr_db"))
    assert fine.steps[0].score < 40
    assert fine.steps[1].score > 65
    assert clipped.steps[1].score < 15
    assert fine.steps[1].share is None


def test_what_an_earlier_subject_changed_is_not_changed_again() -> None:
    quantized, samples, _ = spoilt_demo()
    subjects = named_subjects(quantized, ["block2/depthwise", "tensor:block1/relu", "block2/add"])
    found = sweep(quantized, samples, subjects, PartialSettings(score="cosine"))
    assert found.steps[2].quantizers == ()
    assert found.steps[2].score == found.steps[1].score
    assert found.steps[1].op_type == "Conv"


def counting_evaluator(scores: Sequence[float], *, higher: bool = True, stop_at: int | None = None) -> Evaluator:
    given = iter(scores)
    calls = iter(range(100))

    def evaluate(run: Run, samples: EvaluationSamples) -> float:
        if next(calls) == stop_at:
            raise KeyboardInterrupt
        assert run(samples[0])["logits"].shape == (1, 10)
        return next(given)

    return Evaluator("mine", higher, Path("eval.py"), evaluate)


def test_an_evaluator_decides() -> None:
    quantized, samples, _ = spoilt_demo()
    subjects = named_subjects(quantized, ["block2/depthwise", "block4/depthwise", "logits"])
    evaluator = counting_evaluator([0.9, 0.5, 0.7, 0.6, 0.895])
    found = sweep(quantized, samples, subjects, PartialSettings(evaluator=evaluator))
    assert (found.score, found.float_score, found.knee) == ("mine", 0.9, 3)
    assert [step.score for step in found.steps] == [0.5, 0.7, 0.6, 0.895]
    assert (found.drops, found.levels_off, found.complete) == ((2,), 3, True)


def test_an_evaluator_sees_the_networks_it_is_said_to() -> None:
    quantized, samples, labels = spoilt_demo()

    def accuracy(run: Run, seen: EvaluationSamples) -> float:
        guesses = [run(feed)["logits"].argmax() for feed in seen]
        return float(np.mean(np.array(guesses) == labels))

    subjects = named_subjects(quantized, ["block2/depthwise", "block4/depthwise"])
    theirs = sweep(
        quantized, samples, subjects, PartialSettings(evaluator=Evaluator("mine", True, Path("x"), accuracy))
    )
    ours = sweep(quantized, samples, subjects, PartialSettings(labels=labels))
    assert [step.score for step in theirs.steps] == [step.score for step in ours.steps]
    assert theirs.float_score == ours.float_score


def test_it_may_stop_at_the_goal_and_count_downwards() -> None:
    quantized, samples, _ = spoilt_demo()
    subjects = named_subjects(quantized, ["block2/depthwise", "block4/depthwise", "logits"])
    evaluator = counting_evaluator([1.0, 5.0, 1.01, 9.0, 9.0], higher=False)
    found = sweep(quantized, samples, subjects, PartialSettings(evaluator=evaluator, stop_at_goal=True))
    assert (found.knee, len(found.steps), found.higher_is_better) == (1, 2, False)


def test_ctrl_c_keeps_what_is_done() -> None:
    quantized, samples, _ = spoilt_demo()
    subjects = named_subjects(quantized, ["block2/depthwise", "block4/depthwise"])
    found = sweep(
        quantized, samples, subjects, PartialSettings(evaluator=counting_evaluator([1.0, 0.5, 0.6], stop_at=3))
    )
    assert [step.score for step in found.steps] == [0.5, 0.6]
    assert not found.complete
    assert "the sweep was interrupted after 2 of 3 networks" in map(str, found.notes)
    with pytest.raises(KeyboardInterrupt):
        sweep(quantized, samples, subjects, PartialSettings(evaluator=counting_evaluator([1.0], stop_at=1)))


def test_several_outputs_and_inputs(tmp_path: Path) -> None:
    """Scores are means over the outputs, and samples that cannot be run together are run alone."""
    quantized, samples = network("skips and outputs", tmp_path, samples=3)
    subjects = named_subjects(quantized, ["late", "stem"])
    found = sweep(quantized, samples, subjects, PartialSettings())
    model = quantized.float_model
    off = {name for step in found.steps for name in step.quantizers}
    on = [each for each in quantized.quantizers if each.name not in off]
    names = ["gate", "twice"]
    left, right = (tensors_of(each, samples.feeds, names) for each in (model, insert_quantizers(model, on)))
    expected = [
        cosine(*(np.concatenate([sample[place] for sample in side]) for side in (left, right)))
        for place in range(2)
    ]
    assert found.steps[-1].score == pytest.approx(float(np.mean(expected)), rel=1e-6)


def test_little_memory_gives_the_same() -> None:
    quantized, samples, labels = spoilt_demo()
    subjects = named_subjects(quantized, ["block2/depthwise", "block4/depthwise", "logits"])
    plenty = sweep(quantized, samples, subjects, PartialSettings(labels=labels))
    little = sweep(quantized, samples, subjects, PartialSettings(labels=labels, max_memory=2**20))
    assert little == plenty


def test_what_cannot_be_swept() -> None:
    quantized, samples, labels = spoilt_demo()
    subjects = named_subjects(quantized, ["logits"])
    for settings, what in (
        (PartialSettings(labels=labels[:7]), "There are 7 labels for 60 rows of 60 samples"),
        (PartialSettings(labels=labels[:1]), "There is 1 label for 60 rows"),
        (PartialSettings(labels=labels + 1), "The label 10 is no class of the model: its output has 10 scores"),
        (PartialSettings(labels=labels - 1), "The label -1 is no class of the model"),
        (PartialSettings(score="accuracy"), "Accuracy needs to know what is right"),
        (PartialSettings(score="acuracy", labels=labels), "There is no score 'acuracy'"),
        (PartialSettings(score="sqnr_db", goal="99%"), "a share of the float network's sqnr_db, which is inf"),
        (PartialSettings(stop_at_goal=True), "none can be left out at the goal"),
        (PartialSettings(evaluator=counting_evaluator([]), labels=labels), "An evaluator and labels were given"),
    ):
        with pytest.raises(BadInput) as caught:
            sweep(quantized, samples, subjects, settings)
        assert what in caught.value.what
    with pytest.raises(BadInput, match="nothing to leave in float"):
        sweep(quantized, samples, [])
    with pytest.raises(BadInput, match="has the quantizer 'none', which the model does not have"):
        sweep(quantized, samples, [SwitchedSubject("x", "group", ("none",))])


def test_labels_need_an_output_with_classes(tmp_path: Path) -> None:
    quantized, samples = network("residual", tmp_path, samples=3)
    subjects = named_subjects(quantized, ["body"])
    with pytest.raises(BadInput, match="No output of the model has a row of scores"):
        sweep(quantized, samples, subjects, PartialSettings(labels=np.zeros(3, np.int64)))
    with pytest.raises(BadInput, match="has no output for which same_top1 can be said"):
        sweep(quantized, samples, subjects, PartialSettings(score="same_top1"))


def test_weights_without_a_float_model_are_noted() -> None:
    quantized, samples, _ = spoilt_demo()
    read = read_quantized(bake_quantizers(quantized.float_model, quantized.quantizers))
    subjects = named_subjects(read, ["stem/conv"])
    baked, known = sweep(read, samples, subjects), sweep(quantized, samples, subjects)
    assert (baked.exact_weights, known.exact_weights) == (True, False)
    assert any("leaving them in float changes nothing" in str(note) for note in baked.notes)
    assert not any("changes nothing" in str(note) for note in known.notes)


def test_16_bits_of_what_has_them_is_noted() -> None:
    quantized, samples, _ = spoilt_demo()
    first = quantized.quantizers[0]
    wide = replace(first, spec=replace(first.spec, bits=16))
    changed = replace(quantized, quantizers=(wide, *quantized.quantizers[1:]))
    found = sweep(changed, samples, [SwitchedSubject("x", "group", (first.name,))], PartialSettings(to="s16"))
    assert f"1 quantizer that had 16 bits before stayed as before: {first.name}" in map(str, found.notes)
