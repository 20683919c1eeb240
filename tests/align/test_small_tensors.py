"""Outputs of two numbers: several samples say which tensor they are, where one says too little."""

import numpy as np

from roundoff.align.alignment import align
from roundoff.align.pairing import TensorPair
from roundoff.core.tensors import Array
from tests.sources import in_samples


def network(seed: int) -> dict[str, Array]:
    """conv -> logits -> softmax -> output, which only forwards; and two numbers that never change."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((1, 2)).astype(np.float32)
    scores = (np.exp(logits) / np.exp(logits).sum()).astype(np.float32)
    conv = rng.standard_normal((1, 8, 6, 6)).astype(np.float32)
    size = np.array([[8.0, 6.0]], np.float32)
    return {"conv": conv, "size": size, "logits": logits, "softmax": scores, "out": scores}


def last_pair(theirs: list[Array], count: int) -> TensorPair | None:
    ours = {str(at): network(at) for at in range(count)}
    dumped = {str(at): {"t0": network(at)["conv"], "t1": theirs[at]} for at in range(count)}
    found = align(in_samples(ours), in_samples(dumped), outputs=("out",))
    return next((pair for pair in found.pairs if pair.candidate == "t1"), None)


def test_what_agrees_in_every_sample_is_certain() -> None:
    for name, owner in (("out", "out"), ("logits", "logits")):
        pair = last_pair([network(at)[name].astype(np.float16) for at in range(8)], 8)
        assert pair is not None
        assert (pair.reference, pair.how) == (owner, "value")
        assert pair.confidence >= 0.9


def test_two_samples_or_values_of_nobody_are_not_settled() -> None:
    rng = np.random.default_rng(5)
    few = last_pair([network(at)["out"] for at in range(2)], 2)
    other = last_pair([rng.standard_normal((1, 2)).astype(np.float32) for _ in range(8)], 8)
    still = last_pair([network(0)["size"] for _ in range(8)], 8)
    assert all(pair is None or pair.how != "value" or pair.confidence < 0.9 for pair in (few, other, still))


def test_a_first_sample_with_nan_hides_no_partner() -> None:
    ours = {str(at): network(at) for at in range(3)}
    dumped = {at: {"t0": each["conv"]} for at, each in ours.items()}
    ours["0"] = {name: np.full_like(each, np.nan) for name, each in ours["0"].items()}
    found = align(in_samples(ours), in_samples(dumped))
    assert [(pair.reference, pair.candidate, pair.how) for pair in found.pairs] == [("conv", "t0", "value")]
