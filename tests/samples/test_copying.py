"""Samples that were stored can be fed again."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import InputSpec
from roundoff.samples.sample_set import LIST_NAME, copy_samples, open_samples

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "names", [["image"], ["left", "right"], ["a/b:0", "worst.txt", "名 前"]], ids=["one", "two", "odd"]
)
def test_the_list_gives_them_back_in_order(tmp_path: Path, names: list[str]) -> None:
    specs = [InputSpec(name, "float32", (1, 3, 4)) for name in names]
    feeds = [
        (f"photo {number}/x", {name: RNG.random((1, 3, 4)).astype(np.float32) for name in names})
        for number in range(12)
    ]
    copy_samples(tmp_path, feeds, heading="a\nb")
    again = open_samples(tmp_path / LIST_NAME, specs)
    assert len(again) == len(feeds)
    for index, (_, feed) in enumerate(feeds):
        stored = again.feed(index)
        assert list(stored) == names
        for name in names:
            np.testing.assert_array_equal(stored[name], feed[name])
    assert (tmp_path / LIST_NAME).read_text(encoding="utf-8").startswith("# a b\n")
