import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.measure.statistics import TensorStats, summarize_tensors
from tests.sources import in_samples

RNG = np.random.default_rng(0)
SHAPES = {"small": (3,), "large": (1100, 1000), "empty": (0, 4), "other": (5, 5)}
CONTENT = {sample: {name: RNG.standard_normal(shape) for name, shape in SHAPES.items()} for sample in "abc"}


class Recorder:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def start(self, title: str, total: int) -> None:
        self.calls.append((title, total))

    def advance(self, steps: int = 1) -> None:
        self.calls.append(steps)

    def finish(self) -> None:
        self.calls.append("end")


@pytest.mark.parametrize("threads", [1, 3])
def test_every_tensor_is_summed_over_all_samples_in_order(threads: int) -> None:
    summaries = summarize_tensors(in_samples(CONTENT), threads=threads)

    assert [summary.info.name for summary in summaries] == list(SHAPES)
    assert {summary.samples for summary in summaries} == {3}
    for summary in summaries:
        parts = [TensorStats.of(CONTENT[sample][summary.info.name]) for sample in "abc"]
        assert summary.stats == parts[0].merge(parts[1]).merge(parts[2])


def test_progress_is_told_of_every_sample() -> None:
    recorder = Recorder()

    summarize_tensors(in_samples(CONTENT), progress=recorder)

    assert recorder.calls == [("summing up", 3), 1, 1, 1, "end"]


def test_an_error_while_reading_comes_through_and_ends_the_progress() -> None:
    recorder = Recorder()

    with pytest.raises(BadInput, match="other is truncated"):
        summarize_tensors(in_samples(CONTENT, broken=("other",)), progress=recorder)

    assert recorder.calls[-1] == "end"
