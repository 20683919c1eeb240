"""What candidates are measured by: labels, agreement, functions of the user's."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model, model_from_proto
from roundoff.run import bench as running
from roundoff.run.bench import Bench
from roundoff.run.evaluators import remembering
from roundoff.run.session import Session, open_session
from roundoff.samples.sample_set import ArraySamples
from roundoff.search.evaluators import FunctionJudge, JudgeOptions, make_judge
from roundoff.search.judges import SignalJudge, TrialJudge
from tests.diagnosis.planting import detector
from tests.models import conv_net, loaded, residual

COUNT = 40


class Images:
    label = "random"
    names = tuple(f"s{number}" for number in range(COUNT))

    def __init__(self, name: str = "image") -> None:
        self.values = np.random.default_rng(1).standard_normal((COUNT, 1, 3, 8, 8)).astype(np.float32)
        self._name = name

    def feed(self, index: int) -> Mapping[str, Array]:
        return {self._name: self.values[index]}


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return loaded(conv_net("N"), tmp_path)


def test_labels_are_compared_row_by_row(model: Model) -> None:
    same = make_judge(model, Images(), JudgeOptions())
    assert (same.name, same.float_values().tolist()) == ("same_top1", [1.0] * COUNT)
    right = make_judge(model, Images(), JudgeOptions(labels=np.zeros(COUNT, np.int64)))
    values = right.float_values()
    assert right.name == "accuracy"
    order = [7, 3, 30]
    assert right.measure(model, order).tolist() == values[order].tolist()
    with pytest.raises(BadInput, match="There are 3 labels for 40 rows of 40 samples"):
        make_judge(model, Images(), JudgeOptions(labels=np.zeros(3, np.int64)))


def test_outputs_that_are_no_class_scores_are_compared_by_decibels(tmp_path: Path) -> None:
    model = loaded(residual(), tmp_path)
    name = model.proto.graph.input[0].name
    judge = make_judge(model, Images(name), JudgeOptions())
    assert judge.name == "mean_sqnr_db"
    assert judge.measure(model, [0, 1]).tolist() == [150.0, 150.0]


def test_decibels_are_of_the_part_of_an_output_that_is_worst_off() -> None:
    """Scores that vanish do not show beside boxes in hundreds of pixels."""
    model, arrays = detector(640.0)
    proto = copy.deepcopy(model.proto)
    (scores,) = (each for each in proto.graph.initializer if each.name == "ws")
    scores.CopyFrom(numpy_helper.from_array(-100 * np.abs(numpy_helper.to_array(scores)), "ws"))
    judge = SignalJudge(Bench(model, ArraySamples(arrays)))
    assert judge.measure(model_from_proto(proto, path=model.path), [0, 1]).max() < 10
    assert judge.measure(model, [0, 1]).tolist() == [150.0, 150.0]


def test_what_float_gives_is_computed_once_for_the_same_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, other = (loaded(residual(), tmp_path) for _ in range(2))
    bench = Bench(model, Images(model.proto.graph.input[0].name))
    judge, run, asked = SignalJudge(bench), bench.run_together, list[Model]()

    def counting(of: Model, indices: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[Array]]]:
        asked.append(of)
        return run(of, indices)

    monkeypatch.setattr(bench, "run_together", counting)
    first, second = (judge.measure(other, [0, 5, 9]).tolist() for _ in range(2))
    assert first == second
    assert [each is model for each in asked] == [False, True, False]
    # Other samples are others.
    assert judge.measure(other, [1, 2]).shape == (2,)


def test_what_is_kept_follows_what_the_process_may_take(tmp_path: Path) -> None:
    """A tenth of it, and never more than 256 MB."""
    model = loaded(residual(), tmp_path)
    samples = Images(model.proto.graph.input[0].name)
    size = sum(array.nbytes for array in samples.feed(0).values())
    bench = Bench(model, samples, keep=True, max_memory=25 * size)
    first, second, third = (bench.feed(index) for index in range(3))
    assert bench.feed(0) is first
    assert bench.feed(1) is second
    assert bench.feed(2) is not third
    judge = SignalJudge(Bench(model, samples, max_memory=1))
    assert judge.measure(model, [0, 1]).tolist() == [150.0, 150.0]
    assert judge._known == {}
    assert Bench(model, samples, max_memory=1 << 50).room == 1 << 28


def test_nodes_are_fused_only_where_that_changes_nothing_but_last_bits(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[bool]()

    def opening(of: Model, **options: Any) -> Session:
        opened.append(options.get("fused", False))
        return open_session(of, **options)

    monkeypatch.setattr(running, "open_session", opening)
    for least_db, fused in ((90.0, True), (float("inf"), False)):
        opened.clear()
        monkeypatch.setattr(running, "FUSED_AGREEMENT_DB", least_db)
        monkeypatch.setattr(running, "agreement_db", lambda *_: 120.0)
        bench = Bench(model, Images())
        for _ in range(3):
            assert sum(len(chunk) for chunk, _ in bench.run_together(model, [3, 1, 4])) == 3
        # Two to find out, and one that serves all runs.
        assert opened == [False, True, fused]


PER_SAMPLE = """
import numpy as np
RANGE = (0, 1)
def evaluate(run, samples):
    return [run(feed)["logits"].argmax() == index % 10 for index, feed in zip(samples.indices, samples)]
"""
BY_PLACE = """
def evaluate(run, samples):
    return [float(run(feed)["logits"].argmax() == place % 10) for place, feed in enumerate(samples)]
"""
ONE_NUMBER = """
import numpy as np
HIGHER_IS_BETTER = False
def evaluate(run, samples):
    return np.float32(np.mean([run(feed)["logits"].max() for feed in samples]))
"""
VENDOR = """
import numpy as np
import onnxruntime
class Evaluator:
    def calibration(self, model):
        raise AssertionError
    def evaluate(self, model):
        session = onnxruntime.InferenceSession(model)
        return np.float64(session.run(None, {"image": np.ones((1, 3, 8, 8), np.float32)})[0].max())
    def metric_eval(self, original, new):
        return np.bool_(abs(original - new) < 0.01), np.float32(original - new)
"""


def judged(folder: Path, code: str, model: Model) -> TrialJudge:
    (folder / "mine.py").write_text(code)
    return make_judge(model, Images(), JudgeOptions(evaluator=folder / "mine.py"))


def test_functions_give_a_value_for_each_sample_or_one_for_all(tmp_path: Path, model: Model) -> None:
    many = judged(tmp_path, PER_SAMPLE, model)
    assert many.by_sample
    assert (many.limits, many.notes) == ((0.0, 1.0), ())
    assert many.measure(model, [5, 1]).tolist() == many.float_values()[[5, 1]].tolist()
    one = judged(tmp_path, ONE_NUMBER, model)
    assert (one.by_sample, one.higher_is_better, one.float_values().shape) == (False, False, ())
    assert one.measure(model, [0]) == one.float_values()


RANKS = """
import numpy as np
def evaluate(run, samples):
    found = []
    for feed in samples:
        found.append(next(iter(run(feed).values())).ravel()[0])
    truth = np.arange(len(found))
    return float(np.corrcoef(np.argsort(np.argsort(found)), truth)[0, 1])
"""


def test_one_number_for_all_has_an_interval_although_small_groups_keep_their_ranks(
    tmp_path: Path, model: Model
) -> None:
    judge = judged(tmp_path, RANKS, model)
    assert isinstance(judge, FunctionJudge)
    assert judge.with_interval(model) == (float(judge.float_values()), None)
    other = replace(model, proto=copy.deepcopy(model.proto))
    weight = next(each for each in other.proto.graph.initializer if len(each.dims) > 1)
    numbers = numpy_helper.to_array(weight)
    noise = np.random.default_rng(5).normal(size=numbers.shape) * numbers.std()
    weight.CopyFrom(numpy_helper.from_array((numbers + 0.3 * noise).astype(np.float32), weight.name))
    score, found = judge.with_interval(other)
    assert score == judge.measure(other, ())
    loss = float(judge.float_values() - score)
    assert found is not None
    assert found[0] < loss < found[1]


def test_what_a_network_gave_is_not_computed_again_and_may_be_written_into() -> None:
    fed: list[float] = []

    def run(feed: Mapping[str, Array]) -> dict[str, Array]:
        fed.append(float(feed["x"][0]))
        return {"y": 2 * feed["x"]}

    again = remembering(run)
    for value in (1.0, 2.0, 1.0):
        found = again({"x": np.array([value])})["y"]
        assert found == 2 * value
        found += 7
    assert fed == [1.0, 2.0]
    without_room = remembering(run, max_memory=1)
    for value in (1.0, 1.0):
        without_room({"x": np.array([value])})
    assert fed == [1.0, 2.0, 1.0, 1.0]


def test_values_that_go_by_position_are_noticed(tmp_path: Path, model: Model) -> None:
    judge = judged(tmp_path, BY_PLACE, model)
    assert not judge.by_sample
    assert "another value among other samples" in str(judge.notes[0])
    assert judge.measure(model, [3]) == judge.float_values()


def test_vendors_evaluators_get_files_and_may_answer_in_numpy(tmp_path: Path, model: Model) -> None:
    judge = judged(tmp_path, VENDOR, model)
    score = float(judge.float_values())
    assert judge.satisfied(score, score - 0.5) == (False, 0.5)
    assert judge.measure(model, ()) == score


@pytest.mark.parametrize(
    "code",
    [
        "class Mine:\n    def evaluate(self, model): return 0.5",
        "class My:\n    def __init__(self, x): self.x = x\n    def evaluate(self, m): return self.x\nm = My(.5)",
        (
            "class Base:\n    def evaluate(self, model): return 1\n"
            "class Mine(Base):\n    def evaluate(self, model): return 0.5"
        ),
        (
            "import numpy as np\ndef evaluate(model): return np.array([0.5])\n"
            "def metric_eval(a, b): return np.array([True]), np.array([0.0])"
        ),
    ],
)
def test_vendors_evaluators_come_as_class_object_or_functions(tmp_path: Path, model: Model, code: str) -> None:
    judge = judged(tmp_path, code, model)
    assert float(judge.float_values()) == 0.5
    assert judge.satisfied(0.5, 0.5) in (None, (True, 0.0))


def test_values_outside_the_range_are_noticed_in_quantized_models_too(tmp_path: Path, model: Model) -> None:
    code = "CALLS = []\nRANGE = (0, 1)\ndef evaluate(run, samples):\n    CALLS.append(1)\n"
    judge = judged(tmp_path, code + "    return [0.5 if len(CALLS) < 4 else 2.0 for _ in samples]", model)
    with pytest.raises(BadInput, match="outside its RANGE"):
        judge.measure(model, [0, 1])


def test_columns_and_generators_of_values_are_fine_and_prints_go_to_stderr(
    tmp_path: Path, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    column = (
        "import numpy as np\ndef evaluate(run, samples):\n    print('busy')\n    return np.ones((len(samples), 1))"
    )
    assert judged(tmp_path, column, model).float_values().tolist() == [1.0] * COUNT
    assert capsys.readouterr() == ("", "busy\nbusy\nbusy\n")
    lazy = "def evaluate(run, samples):\n    for feed in samples:\n        yield 1.0"
    assert judged(tmp_path, lazy, model).by_sample


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RANGE = 3\ndef evaluate(run, samples):\n    return [0.0 for _ in samples]", "RANGE in .* is 3"),
        ("RANGE = (0, 1)\ndef evaluate(run, samples):\n    return [7.0 for _ in samples]", "outside its RANGE"),
        ("def evaluate(model):\n    return 'good'", "gave 'good', which is not a finite number"),
        ("def evaluate(model):\n    return 1 / 0", "failed in line 2: ZeroDivisionError"),
        (
            "def evaluate(model):\n    return 1\ndef metric_eval(a, b):\n    return True",
            "not whether it is good enough",
        ),
        (
            "def evaluate(model):\n    return 1\ndef metric_eval(a, b):\n    return False, 0",
            "is not satisfied with",
        ),
        ("def evaluate(run, samples):\n    return [1.0, 2.0]", "has 2 values for 40 samples"),
        (
            "def evaluate(run, samples):\n    return [float('nan')] + [1.0] * (len(samples) - 1)",
            "not finite for sample 's0'",
        ),
        ("RANGE = (1, 0)\ndef evaluate(run, samples):\n    return [0.5 for _ in samples]", "RANGE in .* is"),
        ("import sys\ndef evaluate(run, samples):\n    sys.exit(3)", "failed in line 3: SystemExit: 3"),
        ("def evaluate(run, samples):\n    return run({'picture': 1})", "run.. was fed 'picture'; .* 'image'"),
        (
            "def evaluate(model):\n    return 1\ndef metric_eval(a, b):\n    return 'no', 0.1",
            "not whether it is good enough",
        ),
        (
            "def evaluate(model):\n    return 1\ndef metric_eval(a, b):\n    return True, float('nan')",
            "not whether it is good enough",
        ),
        (
            "class A:\n    def evaluate(self, m): return 1\nclass B:\n    def evaluate(self, m): return 2",
            "holds 2 evaluators: A, B",
        ),
        (VENDOR + "    def __init__(self, x): ...\n", "failed: TypeError"),
    ],
)
def test_what_is_wrong_with_an_evaluator_is_said(tmp_path: Path, model: Model, code: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        judged(tmp_path, code, model)


def test_an_evaluator_that_answers_differently_twice_is_doubted(tmp_path: Path, model: Model) -> None:
    code = "CALLS = []\ndef evaluate(run, samples):\n    CALLS.append(1)\n    return 0.5 + 0.1 * len(CALLS)"
    assert [each.kind for each in judged(tmp_path, code, model).doubts] == ["unrepeatable"]
    steady = "def evaluate(run, samples):\n    return 0.5"
    assert [each.kind for each in judged(tmp_path, steady, model).doubts] == ["blind"]
    assert judged(tmp_path, steady.replace("return", "run(samples[0])\n    return"), model).doubts == ()
    # The vendors' form is asked twice, too.
    assert [each.kind for each in judged(tmp_path, code.replace("run, samples", "model"), model).doubts] == [
        "unrepeatable"
    ]
    assert judged(tmp_path, steady.replace("run, samples", "model"), model).doubts == ()
