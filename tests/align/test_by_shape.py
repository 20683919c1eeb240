"""Shapes as a last resort."""

import numpy as np
import pytest

from roundoff.align.alignment import align
from roundoff.align.pairing import TensorPair
from roundoff.errors import CannotAlign
from tests.sources import MemorySource

RNG = np.random.default_rng(0)
BODY = {f"layer{i}": RNG.standard_normal((1, 4, 8, 8)) for i in range(3)}


def pairs(ours: dict[str, tuple[int, ...]], theirs: dict[str, tuple[int, ...]]) -> list[TensorPair]:
    """What is paired by shape when the body matches by name and everything else is unrelated."""
    reference = BODY | {name: RNG.standard_normal(shape) for name, shape in ours.items()}
    candidate = BODY | {name: RNG.standard_normal(shape) for name, shape in theirs.items()}
    sources = MemorySource(reference, ordered=False), MemorySource(candidate, ordered=False)
    return [pair for pair in align(*sources).pairs if pair.how == "shape"]


def test_a_shape_that_nobody_else_has_is_a_hint() -> None:
    (pair,) = pairs({"logits": (1, 10)}, {"L13.ofm": (1, 10, 1, 1)})
    assert (pair.reference, pair.candidate, pair.confidence) == ("logits", "L13.ofm", 0.3)
    assert pair.layout is not None
    assert pair.layout.apply(np.zeros((1, 10, 1, 1))).shape == (1, 10)


def test_a_shape_of_two_tensors_is_none() -> None:
    assert pairs({"a": (1, 10), "b": (10,)}, {"c": (1, 10)}) == []
    assert pairs({"a": (1, 10)}, {"c": (1, 10), "d": (1, 10)}) == []
    assert pairs({"a": (1, 4, 8, 8)}, {"c": (1, 4, 8, 8)}) == []
    assert pairs({"a": (0, 10)}, {"c": (0, 10)}) == []


def test_shapes_alone_are_not_enough() -> None:
    ours, theirs = MemorySource({"a": RNG.standard_normal(99)}), MemorySource({"b": RNG.standard_normal(99)})
    with pytest.raises(CannotAlign, match="neither by name nor by value"):
        align(ours, theirs)


def handed_out(theirs: dict[str, tuple[int, ...]], outputs: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Partners of outputs in a candidate of unrelated values, and what they rest on."""
    ours = BODY | {"logits": RNG.standard_normal((1, 10)), "mask": RNG.standard_normal((1, 1, 8, 8))}
    candidate = {name: RNG.standard_normal(shape) for name, shape in theirs.items()}
    sources = MemorySource(ours, ordered=False), MemorySource(candidate, ordered=False)
    found = align(*sources, outputs=outputs).pairs
    return {pair.reference: (pair.candidate, pair.how) for pair in found}


def test_what_holds_no_more_than_the_outputs_holds_these() -> None:
    assert handed_out({"9daa6": (1, 10)}, ("logits", "mask")) == {"logits": ("9daa6", "elimination")}
    both = handed_out({"9daa6": (1, 8, 8, 1), "be859": (1, 10, 1, 1)}, ("logits", "mask"))
    assert both == {"logits": ("be859", "elimination"), "mask": ("9daa6", "elimination")}


@pytest.mark.parametrize("outputs", [(), ("mask",)])
def test_a_shape_of_no_output_is_none(outputs: tuple[str, ...]) -> None:
    with pytest.raises(CannotAlign):
        handed_out({"9daa6": (1, 10)}, outputs)


def test_outputs_of_one_shape_are_not_told_apart() -> None:
    ours = {name: RNG.standard_normal((1, 10)) for name in ("boxes", "scores")}
    theirs = {name: RNG.standard_normal((1, 10)) for name in ("1f", "2e")}
    with pytest.raises(CannotAlign):
        align(MemorySource(ours, ordered=False), MemorySource(theirs, ordered=False), outputs=("boxes", "scores"))


def test_a_dump_of_more_than_the_outputs_is_not_taken_for_them() -> None:
    theirs = {"9daa6": (1, 10), "x": (3, 3), "y": (5,)}
    with pytest.raises(CannotAlign):
        handed_out(theirs, ("logits", "mask"))
