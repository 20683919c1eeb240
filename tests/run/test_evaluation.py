"""How good a network is at its task."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.errors import BadInput, ModelFailed
from roundoff.measure.classes import class_predictions
from roundoff.run.evaluators import EvaluationSamples, check_apart, load_evaluator
from tests.models import loaded, residual
from tests.run.samples import MemorySamples

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def call(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return call


@pytest.fixture
def samples(tmp_path: Path) -> EvaluationSamples:
    feeds = [{"image": np.full((1, 3, 8, 8), number, np.float32)} for number in range(4)]
    return EvaluationSamples(loaded(residual(), tmp_path), MemorySamples(feeds))


def doubled(feed: object) -> dict[str, Array]:
    assert isinstance(feed, dict)
    return {"y": 2 * feed["image"]}


def test_the_function_is_given_the_network_and_the_samples(write: Write, samples: EvaluationSamples) -> None:
    path = write(
        "mean.py", "def evaluate(run, samples):\n    return sum(run(feed)['y'].mean() for feed in samples)\n"
    )
    evaluator = load_evaluator(path)
    assert (evaluator.name, evaluator.higher_is_better) == ("mean", True)
    assert evaluator(doubled, samples) == 2 * (0 + 1 + 2 + 3)


def test_a_file_may_say_what_its_score_is_called_and_which_way_it_goes(write: Write) -> None:
    text = "NAME = 'perplexity'\nHIGHER_IS_BETTER = False\ndef evaluate(run, samples): return 1\n"
    evaluator = load_evaluator(write("eval.py", text))
    assert (evaluator.name, evaluator.higher_is_better) == ("perplexity", False)


@pytest.mark.parametrize("given", ["1", "True", "np.float32(1)", "np.array(1)", "np.array([1.0])"])
def test_any_number_will_do(given: str, write: Write, samples: EvaluationSamples) -> None:
    path = write("eval.py", f"import numpy as np\ndef evaluate(run, samples): return {given}\n")
    assert load_evaluator(path)(doubled, samples) == 1.0


@pytest.mark.parametrize("given", ["None", "'1'", "float('nan')", "float('inf')", "np.zeros(2)", "1j"])
def test_what_is_no_number_is_refused(given: str, write: Write, samples: EvaluationSamples) -> None:
    path = write("eval.py", f"import numpy as np\ndef evaluate(run, samples): return {given}\n")
    with pytest.raises(BadInput, match=r"which (is not finite|is no number|has 2 values for 4)") as caught:
        load_evaluator(path)(doubled, samples)
    assert "return one number" in caught.value.fix


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1\n", "has no function evaluate"),
        ("import nothing_like_it\n", "failed in line 1: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("x = 1\ndef evaluate(run, samples) return 1\n", "failed in line 2: SyntaxError"),
    ],
)
def test_files_that_cannot_be_used(text: str, what: str, write: Write) -> None:
    with pytest.raises(BadInput) as caught:
        load_evaluator(write("eval.py", text))
    assert what in caught.value.what


def test_a_missing_file_and_one_that_is_no_python(write: Write, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        load_evaluator(tmp_path / "none.py")
    with pytest.raises(BadInput, match="is not a Python file"):
        load_evaluator(write("eval.txt", ""))


def test_an_error_in_the_function_is_told_with_its_line(write: Write, samples: EvaluationSamples) -> None:
    path = write("eval.py", "def evaluate(run, samples):\n    feed = samples[0]\n    return run(feed)['logits']\n")
    with pytest.raises(BadInput) as caught:
        load_evaluator(path)(doubled, samples)
    assert caught.value.what == f"The evaluator {path} failed in line 3: KeyError: 'logits'."

    def fails(feed: object) -> dict[str, Array]:
        raise ModelFailed("it does not run", fix="mend it")

    with pytest.raises(ModelFailed):
        load_evaluator(path)(fails, samples)


def test_a_file_that_ends_the_program_fails(write: Write, samples: EvaluationSamples) -> None:
    path = write("eval.py", "import sys\ndef evaluate(run, samples):\n    sys.exit(0)\n")
    with pytest.raises(BadInput, match="failed in line 3: SystemExit: 0"):
        load_evaluator(path)(doubled, samples)
    with pytest.raises(BadInput, match="failed in line 1: SystemExit"):
        load_evaluator(write("eval.py", "raise SystemExit\n"))


def test_what_a_file_prints_does_not_come_among_results(
    write: Write, samples: EvaluationSamples, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "print('loading')\ndef evaluate(run, samples):\n    print('measuring')\n    return 1\n"
    load_evaluator(write("eval.py", text))(doubled, samples)
    assert tuple(capsys.readouterr()) == ("", "loading\nmeasuring\n")


@pytest.mark.parametrize("given", ["'no'", "None", "2", "[]"])
def test_which_way_is_better_must_be_clear(given: str, write: Write) -> None:
    path = write("eval.py", f"HIGHER_IS_BETTER = {given}\ndef evaluate(run, samples): return 1\n")
    with pytest.raises(BadInput, match="which is neither True nor False"):
        load_evaluator(path)


def test_a_generator_need_not_end(write: Write, samples: EvaluationSamples) -> None:
    path = write("eval.py", "def evaluate(run, samples):\n    while True:\n        yield 1.0\n")
    with pytest.raises(BadInput, match="has 5 values for 4 samples"):
        load_evaluator(path)(doubled, samples)


def test_an_evaluator_may_write_into_what_it_is_given(samples: EvaluationSamples) -> None:
    before = {name: each.copy() for name, each in samples[0].items()}
    for each in samples[0].values():
        each[...] = 7
    for name, each in samples[0].items():
        np.testing.assert_array_equal(each, before[name])


def test_samples_are_a_sequence(samples: EvaluationSamples) -> None:
    assert len(samples) == 4
    assert [feed["image"].mean() for feed in samples] == [0, 1, 2, 3]
    assert samples[-1]["image"].mean() == 3
    assert [feed["image"].mean() for feed in samples[1:3]] == [1, 2]
    assert samples[1:3].names == ("s1", "s2")
    with pytest.raises(IndexError):
        samples[4]


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((4, 10), 4),
        ((10,), 1),
        ((4, 10, 1, 1), 4),
        ((2, 3, 10), 6),
        ((2, 1), None),
        ((2, 3, 4, 5), None),
        ((), None),
    ],
)
def test_which_class_an_output_says(shape: tuple[int, ...], rows: int | None) -> None:
    output = np.zeros(shape, np.float32)
    found = class_predictions(output)
    assert (None if found is None else found.size) == rows
    assert class_predictions(output.astype(str)) is None


def test_the_highest_score_wins() -> None:
    found = class_predictions(np.array([[0.1, 0.9, 0.2], [3, 1, 2]]))
    assert found is not None
    assert found.tolist() == [1, 0]


def test_samples_that_were_used_are_no_test(tmp_path: Path) -> None:
    model, rng = loaded(residual(), tmp_path), np.random.default_rng(2)
    feeds = [{"image": rng.random((1, 3, 8, 8)).astype(np.float32)} for _ in range(24)]
    used = MemorySamples(feeds[:16])
    check_apart(model, used, MemorySamples(feeds[16:]))
    with pytest.raises(BadInput, match="--test-data holds samples that were used"):
        check_apart(model, used, MemorySamples(feeds[12:]))
