"""Channels through reshaping."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roundoff.quantize.transforms.scaling_map import FIXED, MOST_CHANNELS, ChannelIds, compact, reshaped


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], np.ndarray]:
    primes = draw(st.lists(st.sampled_from([1, 2, 2, 3]), min_size=1, max_size=6))

    def shape() -> tuple[int, ...]:
        cuts = sorted(draw(st.lists(st.integers(0, len(primes)), max_size=4)))
        parts = [primes[start:end] for start, end in zip([0, *cuts], [*cuts, len(primes)], strict=True)]
        return tuple(int(np.prod(part)) if part else 1 for part in parts)

    old, new = shape(), shape()
    kept = [size if draw(st.booleans()) else 1 for size in old]
    channels = np.array(
        draw(st.lists(st.integers(0, 3), min_size=int(np.prod(kept)), max_size=int(np.prod(kept))))
    )
    return old, new, channels.reshape(kept)


@given(case=reshapes())
def test_channels_stay_with_their_values(case: tuple[tuple[int, ...], tuple[int, ...], np.ndarray]) -> None:
    old, new, channels = case
    found = reshaped(channels, old, new)
    assert found is not None
    assert found.ndim == len(new)
    np.testing.assert_array_equal(np.broadcast_to(found, new), np.broadcast_to(channels, old).reshape(new))


def test_too_many_channels_are_not_followed() -> None:
    channels = np.arange(MOST_CHANNELS + 1)
    assert reshaped(channels, (MOST_CHANNELS + 1,), (1, MOST_CHANNELS + 1)) is None
    assert reshaped(np.zeros((1, 1)), (0, 3), (3, 0)) is None


def test_axes_on_which_nothing_changes_become_one() -> None:
    assert compact(np.array([[1, 1], [2, 2]])).tolist() == [[1], [2]]


def test_joined_channels_stand_for_the_same() -> None:
    ids = ChannelIds()
    first, second, third = ids.fresh((3,)), ids.fresh((3,)), ids.fresh((1,))
    ids.join(first, second)
    assert ids.roots(second).tolist() == first.tolist()
    ids.join(second, third)
    assert len(set(ids.roots(np.concatenate([first, second, third])).tolist())) == 1
    ids.fix(third)
    assert ids.is_fixed(first)
    assert ids.root(int(second[2])) == FIXED
