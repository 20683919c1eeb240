"""Mixing two tensors alike."""

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.case.disguise import mixed_alike
from roundoff.core.tensors import Array

PAIRS = arrays.array_shapes(min_dims=1, max_dims=4, max_side=9).flatmap(
    lambda shape: st.tuples(
        *[arrays.arrays(np.float32, shape, elements=st.floats(-8, 8, width=32)) for _ in range(2)]
    )
)


@given(PAIRS, st.integers(0, 5))
def test_the_same_pairs_of_values_in_another_order(pair: tuple[Array, Array], seed: int) -> None:
    mixed = mixed_alike(*pair, seed=seed)
    assert mixed.reference.shape == pair[0].shape
    before = np.stack([each.ravel() for each in pair])
    after = np.stack([mixed.reference.ravel(), mixed.candidate.ravel()])
    assert np.array_equal(before[:, np.lexsort(before)], after[:, np.lexsort(after)])


@pytest.mark.parametrize("fault", ["gain", "saturation", "channel", "noise"])
def test_faults_that_stay(fault: str) -> None:
    random = np.random.default_rng(0)
    reference = random.normal(size=(1, 8, 12, 12)).astype(np.float32)
    candidate = reference + random.normal(size=reference.shape).astype(np.float32) * 0.01
    if fault == "gain":
        candidate = reference * 1.25
    elif fault == "saturation":
        candidate = np.clip(reference, -0.5, 0.5)
    elif fault == "channel":
        candidate[:, 3] *= -1
    mixed = mixed_alike(reference, candidate, seed=1)
    assert mixed.reasons == ()
    assert not np.array_equal(mixed.reference, reference)
