"""Samples that are run together."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.run.block_chain import even_chunks, read_chunks, rows_of, stack_feeds
from tests.models import conv_net, loaded, random_feed, two_inputs
from tests.run.samples import MemorySamples


def test_neighbours_of_equal_shapes_are_put_together(tmp_path: Path) -> None:
    model = loaded(two_inputs(), tmp_path)
    lengths = [2, 2, 2, 3, 3, 2]
    feeds = [random_feed({"left": (n, 5), "right": (n, 5)}, seed=at) for at, n in enumerate(lengths)]
    samples = MemorySamples(feeds)
    chunks = list(read_chunks(model, samples, range(6), most=2))
    assert [chunk.samples for chunk in chunks] == [(0, 1), (2,), (3, 4), (5,)]
    np.testing.assert_array_equal(chunks[0].feed["right"], np.concatenate([feeds[0]["right"], feeds[1]["right"]]))
    assert chunks[0].label == "s0 ... s1"
    assert chunks[1].label == "s2"


def test_one_at_a_time(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    samples = MemorySamples([random_feed({"image": (1, 3, 8, 8)}, seed=at) for at in range(3)])
    chunks = list(read_chunks(model, samples, [2, 0], most=1))
    assert [chunk.samples for chunk in chunks] == [(2,), (0,)]
    np.testing.assert_array_equal(chunks[0].feed["image"], samples.feeds[2]["image"])


def test_the_digest_is_of_the_values_of_each_sample(tmp_path: Path) -> None:
    model = loaded(conv_net("N"), tmp_path)
    feeds = [random_feed({"image": (1, 3, 8, 8)}, seed=at) for at in (1, 2, 1)]
    alone = [next(read_chunks(model, MemorySamples([feed]), [0], most=1)).digest[0] for feed in feeds]
    (joined,) = read_chunks(model, MemorySamples(feeds), range(3), most=8)
    assert list(joined.digest) == alone
    assert alone[0] == alone[2] != alone[1]


def test_a_sample_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    samples = MemorySamples([random_feed({"image": (1, 3, 8, 9)})])
    with pytest.raises(BadInput, match="'s0'"):
        list(read_chunks(model, samples, [0], most=4))


def test_rows_belong_to_samples() -> None:
    batch = np.arange(24).reshape(6, 4)
    np.testing.assert_array_equal(rows_of(batch, 3), batch.reshape(3, 8))
    assert rows_of(np.zeros((4, 0)), 2).shape == (2, 0)
    scalar = {"x": np.asarray(np.float32(3))}
    assert stack_feeds([scalar])["x"].shape == ()


@given(samples=st.integers(1, 500), most=st.integers(1, 64), workers=st.integers(1, 8))
def test_even_chunks_keep_all_workers_busy(samples: int, most: int, workers: int) -> None:
    size = even_chunks(samples, most=most, workers=workers)
    chunks = math.ceil(samples / size)
    rounds = math.ceil(samples / (most * workers))
    assert 1 <= size <= most
    assert math.ceil(chunks / workers) == rounds
    # Nobody has more than one sample more than a fair share in each round.
    assert size <= math.ceil(samples / (rounds * workers))
