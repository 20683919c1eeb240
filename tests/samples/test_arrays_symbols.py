"""Axes by name: those of one name are one size, those that nobody named are not."""

import pytest

from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput
from roundoff.samples.arrays import check_symbols


def test_axes_called_by_a_question_mark_are_separate_unknowns() -> None:
    check_symbols([(InputSpec("x", "float32", ("?", 3, "?", "?")), (1, 3, 48, 192))], where="x.npy")
    with pytest.raises(BadInput, match="the axis 'n' is 1"):
        check_symbols([(InputSpec("x", "float32", ("n", 3, "n")), (1, 3, 48))], where="x.npy")
