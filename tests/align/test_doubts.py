"""Names that moved to another tensor are found out; names of tensors that are merely wrong are kept."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from roundoff.align.alignment import align
from roundoff.core.tensors import Array, TensorInfo
from tests.sources import MemorySource


def chain(seed: int = 0) -> dict[str, Array]:
    """conv1 -> relu1 -> conv2 -> relu2 ..., as a network computes them."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, Array] = {}
    for index in range(1, 6):
        conv = rng.standard_normal((1, 8, 12, 12)) + rng.standard_normal((1, 8, 1, 1))
        tensors[f"conv{index}"] = conv.astype(np.float32)
        tensors[f"relu{index}"] = np.maximum(tensors[f"conv{index}"], 0)
    return tensors


def noisy(values: Array) -> Array:
    return (values + 0.01 * np.random.default_rng(7).standard_normal(values.shape)).astype(np.float32)


def pairs(theirs: dict[str, Array]) -> dict[str, str]:
    found = align(MemorySource(chain()), MemorySource(theirs))
    return {pair.reference: pair.candidate for pair in found.pairs}


def test_an_activation_written_over_its_layer() -> None:
    ours = chain()
    theirs = {name: noisy(ours[name.replace("conv", "relu")]) for name in ours if name.startswith("conv")}
    assert pairs(theirs) == {f"relu{i}": f"conv{i}" for i in range(1, 6)}


def test_an_activation_folded_into_the_quantizer_behind_it() -> None:
    ours = chain()
    theirs = {}
    for index in range(1, 6):
        theirs[f"relu{index}"] = noisy(ours[f"conv{index}"])
        theirs[f"relu{index}_DequantizeLinear_Output"] = noisy(ours[f"relu{index}"])
    expected = {f"conv{i}": f"relu{i}" for i in range(1, 6)}
    expected |= {f"relu{i}": f"relu{i}_DequantizeLinear_Output" for i in range(1, 6)}
    assert pairs(theirs) == expected


@dataclass(frozen=True)
class KnownKinds(MemorySource):
    """Tensors with the operations that give them."""

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        return tuple(
            replace(info, node=info.name, op_type="Relu" if info.name.startswith("relu") else "Conv")
            for info in super().tensors
        )


@pytest.mark.parametrize(("wrong", "named"), [(1, True), (3, True), (5, True), (3, False), (4, False)])
def test_an_activation_that_was_left_out_is_found_though_all_behind_it_is_wrong(wrong: int, named: bool) -> None:
    ours, other = chain(), chain(seed=7)
    theirs = {}
    for index in range(1, 6):
        right = ours[f"{'conv' if index == wrong else 'relu'}{index}"]
        name = f"relu{index}" if named else f"t_{index:03d}"
        theirs[name] = right if index <= wrong else np.maximum(right + other[f"conv{index}"], 0)
    found = align(KnownKinds(ours), MemorySource(theirs))
    expected = dict(zip((f"relu{index}" for index in range(1, 6)), theirs, strict=True))
    assert {pair.reference: pair.candidate for pair in found.pairs} == expected


def test_an_activation_that_was_left_out_keeps_its_name() -> None:
    ours = chain()
    theirs = {f"relu{index}": noisy(ours[f"{'conv' if index == 3 else 'relu'}{index}"]) for index in range(1, 6)}
    found = align(KnownKinds(ours), MemorySource(theirs))
    assert {pair.reference: pair.candidate for pair in found.pairs} == {
        f"relu{i}": f"relu{i}" for i in range(1, 6)
    }
    # Where all of them hold what they should have read, the names have moved.
    theirs = {f"relu{index}": noisy(ours[f"conv{index}"]) for index in range(1, 6)}
    found = align(KnownKinds(ours), MemorySource(theirs))
    assert {pair.reference: pair.candidate for pair in found.pairs} == {
        f"conv{i}": f"relu{i}" for i in range(1, 6)
    }


def test_copies_under_other_names_do_not_save_a_wrong_name() -> None:
    ours = chain()
    theirs = {}
    for index in range(1, 6):
        for name in (f"conv{index}", f"conv{index}_split_0", f"conv{index}_split_1"):
            theirs[name] = ours[f"relu{index}"]
    found = pairs(theirs)
    assert set(found) == {f"relu{i}" for i in range(1, 6)}


def test_a_tensor_that_is_only_wrong_keeps_its_name() -> None:
    for damage in (
        lambda values: np.random.default_rng(1).permutation(values.ravel()).reshape(values.shape),
        np.zeros_like,
        lambda values: -values + 3,
        lambda values: np.clip(values, -0.1, 0.1),
    ):
        theirs = {name: noisy(values) for name, values in chain().items()}
        theirs["conv3"] = damage(theirs["conv3"])
        assert pairs(theirs) == {name: name for name in theirs}
