"""A gate on the user's metric: intervals, budgets, scores from elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.coverage import MetricScores
from roundoff.errors import BadInput
from roundoff.studies.run_diff.gate import MetricBudget, judge_metrics, metric_budget, read_scores


def scores(right: int, total: int, *, prefix: str = "s", name: str = "accuracy") -> MetricScores:
    values = tuple(float(at < right) for at in range(total))
    return MetricScores(name, True, tuple(f"{prefix}{at}" for at in range(total)), values)


def test_budgets_are_read_as_people_write_them() -> None:
    assert metric_budget("top-1 accuracy: -0.5%") == MetricBudget("top-1 accuracy", 0.5, percent=True)
    assert metric_budget("mAP:0.3") == MetricBudget("mAP", 0.3)
    assert metric_budget("a: b: -1").name == "a: b"
    assert MetricBudget("m", 0.5, percent=True).allowed(0.9) == pytest.approx(0.005)
    assert MetricBudget("m", 0.5, percent=True).allowed(40.0) == pytest.approx(0.2)
    for wrong in ("accuracy", "accuracy: much", ": -1", "accuracy: nan%"):
        with pytest.raises(BadInput, match="is no budget of a metric"):
            metric_budget(wrong)


def _agresti_min(worse: int, total: int) -> tuple[float, float]:
    """The interval of a difference of shares of the same samples, none of which got better."""
    lost, won, size = worse + 0.5, 0.5, total + 2
    half = 1.959964 * ((lost + won - (lost - won) ** 2 / size) ** 0.5) / size
    return (lost - won) / size - half, (lost - won) / size + half


@pytest.mark.parametrize("percent", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("worse", [0, 1, 2, 4, 6, 8, 12, 20, 60])
def test_the_interval_is_held_against_the_budget(worse: int, percent: float) -> None:
    [found] = judge_metrics(
        [scores(180, 200)], [scores(180 - worse, 200)], [metric_budget(f"accuracy: -{percent}%")]
    )
    low, high = _agresti_min(worse, 200)
    assert [found.low, found.high] == pytest.approx([low, high])
    over = worse / 200 > percent / 100
    assert found.passed is not over
    # Significant against nothing lost at all, and not against what may be lost, is no failure.
    assert found.unclear is (over and low <= percent / 100)
    [strict] = judge_metrics(
        [scores(180, 200)], [scores(180 - worse, 200)], [metric_budget(f"accuracy: -{percent}%")], strict=True
    )
    assert (strict.passed, strict.unclear) == (not over, False)


def test_samples_that_the_run_lacks_leave_it_open() -> None:
    [found] = judge_metrics([scores(200, 200)], [scores(150, 150)])
    assert (found.passed, found.unclear, found.lacking, found.samples) == (False, True, 50, 150)
    [worse] = judge_metrics([scores(200, 200)], [scores(75, 150)])
    assert (worse.passed, worse.unclear) == (False, False)


def test_a_loss_fails_only_beyond_chance() -> None:
    [found] = judge_metrics([scores(32, 32)], [scores(30, 32)])
    assert (found.passed, found.unclear, found.paired, found.samples) == (False, True, True, 32)
    assert found.loss == pytest.approx(2 / 32)
    assert found.low is not None
    assert found.low < 0
    [strict] = judge_metrics([scores(32, 32)], [scores(30, 32)], strict=True)
    assert (strict.passed, strict.unclear) == (False, False)
    [clear] = judge_metrics([scores(200, 200)], [scores(180, 200)])
    assert (clear.passed, clear.unclear) == (False, False)
    [allowed] = judge_metrics([scores(200, 200)], [scores(180, 200)], [metric_budget("accuracy: -15%")])
    assert allowed.passed
    [better] = judge_metrics([scores(180, 200)], [scores(200, 200)])
    assert better.passed


def test_other_samples_are_compared_unpaired_and_a_missing_metric_fails() -> None:
    [found] = judge_metrics([scores(95, 100)], [scores(50, 100, prefix="t")])
    assert (found.passed, found.unclear, found.paired) == (False, False, False)
    # Welch: the standard error of two shares, each with the spread of its own samples, and 100 degrees of freedom.
    error = ((0.95 * 0.05 + 0.5 * 0.5) / 99) ** 0.5
    assert found.low == pytest.approx(0.45 - 1.98 * error, abs=2e-3)
    [few] = judge_metrics([scores(10, 10)], [scores(8, 10, prefix="t")])
    assert (few.passed, few.unclear) == (False, True)
    [gone] = judge_metrics([scores(95, 100)], [])
    assert (gone.passed, gone.after) == (False, None)
    one = MetricScores("map", True, (), (0.40,))
    [single] = judge_metrics([one], [MetricScores("map", True, (), (0.38,))])
    assert not single.passed
    with pytest.raises(BadInput, match="no metric 'psnr'; it has: map"):
        judge_metrics([one], [one], [metric_budget("psnr: -1")])


def test_scores_from_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "board.csv"
    file.write_text("sample,accuracy,-loss\na.png,1,0.2\nb.png,0,1.5\n\n", encoding="utf-8")
    accuracy, loss = read_scores(file)
    assert (accuracy.name, accuracy.higher_is_better, accuracy.samples) == ("accuracy", True, ("a.png", "b.png"))
    assert (loss.name, loss.higher_is_better, loss.values) == ("loss", False, (0.2, 1.5))
    rng = np.random.default_rng(3)
    worse = MetricScores("loss", False, loss.samples, tuple(np.array(loss.values) + 1 + rng.random(2) / 100))
    [found] = judge_metrics([loss], [worse])
    assert found.loss == pytest.approx(1, abs=0.02)
    assert not found.passed


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no columns"),
        ("name,accuracy\na,1\n", "no columns"),
        ("sample,accuracy\n", "lines without"),
        ("sample,accuracy\na,1,2\n", "lines without"),
        ("sample,accuracy\na,1\na,0\n", "a sample twice"),
        ("sample,accuracy\na,good\n", "no number"),
        ("sample,accuracy\na,nan\n", "NaN"),
    ],
)
def test_files_that_are_no_scores_are_refused(text: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=what):
        read_scores(file)
