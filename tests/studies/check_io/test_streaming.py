"""Arrays in blocks."""

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.studies.check_io import explanation as streaming

VALUES = st.floats(width=32, allow_nan=True, allow_infinity=True)
PAIRS = arrays.array_shapes(min_dims=0, max_dims=4, max_side=7).flatmap(
    lambda shape: st.tuples(*[arrays.arrays(np.float32, shape, elements=VALUES) for _ in range(2)])
)


@given(PAIRS, st.integers(1, 9))
def test_blocks_change_nothing(pair: tuple[Array, Array], block: int) -> None:
    whole = streaming.array_distance(*pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_BLOCK", block)
        parts = streaming.array_distance(*pair)
        finite = streaming.all_finite(pair[0])
    assert parts.worst == whole.worst
    assert (parts.finite, parts.count) == (whole.finite, whole.count)
    assert parts.square == pytest.approx(whole.square, rel=1e-9)
    assert finite == bool(np.isfinite(pair[0]).all())


@given(PAIRS)
def test_the_same_is_not_apart(pair: tuple[Array, Array]) -> None:
    assert streaming.array_distance(pair[0], pair[0]).worst == 0.0
