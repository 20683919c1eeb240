"""Counting the codes that occur."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.quantizers import QuantSpec, code_dtype
from roundoff.studies.layers.measurement import LevelSet


@settings(deadline=None)
@given(
    st.sampled_from([(8, True), (8, False), (4, True), (16, True), (16, False)]),
    st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=40), max_size=5),
)
def test_every_code_is_counted_once(kind: tuple[int, bool], arrivals: list[list[int]]) -> None:
    spec = QuantSpec(bits=kind[0], signed=kind[1], symmetric=False)
    levels, seen = LevelSet(spec), set()
    for numbers in arrivals:
        codes = np.array([spec.code_min + number % levels.available for number in numbers], code_dtype(spec))
        levels.add(codes)
        seen.update(codes.tolist())
    assert levels.used == len(seen)
    assert levels.available == 2 ** kind[0]


def test_many_codes_in_many_blocks() -> None:
    rng = np.random.default_rng(0)
    levels = LevelSet(QuantSpec(bits=8, signed=True, symmetric=True, narrow=True))
    codes = np.clip(rng.normal(0, 20, (3, 70_000)), -127, 127).astype(np.int8)
    codes[:, 69_999] = 127  # far from all others, in the last block
    for part in codes:
        levels.add(part)
    assert levels.used == len(np.unique(codes))
    assert levels.available == 255
