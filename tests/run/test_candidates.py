"""One graph for several candidates."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.run import variants as module
from roundoff.run.bench import Bench
from roundoff.run.variants import build_candidates
from roundoff.samples.sample_set import ArraySamples
from tests.graph.quantized_nets import mixed_net, mixed_quantizers, run_model
from tests.models import random_feed

MODEL = Model(mixed_net(), Path("net.onnx"), 0)
QUANTIZERS = mixed_quantizers()
FEED = random_feed({"image": (1, 3, 4, 4)})


def of(*names: str) -> list[Quantizer]:
    return [each for each in QUANTIZERS if each.name in names]


def logits(choices: list[list[Quantizer]]) -> tuple[Array, list[Array]]:
    read = [value for value in values(MODEL, {"image": (1, 3, 4, 4)}) if value.name == "logits"]
    copies = build_candidates(MODEL, choices)
    found = Bench(MODEL, ArraySamples(FEED)).open_copies(copies, read).run(FEED)
    return found["logits"], [found[copies.tap("logits", at).name] for at in range(len(choices))]


def test_each_candidate_computes_what_it_does_alone() -> None:
    choices = [[], of("image_q"), of("w2_q", "b2_q"), of("logits_q"), list(QUANTIZERS), of("act_q", "flat_q")]
    reference, others = logits(choices)
    assert np.array_equal(reference, run_model(MODEL, FEED)[0])
    for choice, other in zip(choices, others, strict=True):
        assert np.array_equal(other, run_model(insert_quantizers(MODEL, choice), FEED)[0])
    assert others[0] is reference


def test_what_candidates_have_in_common_is_there_once() -> None:
    """Both quantize the image and then differ only behind the Add."""
    both = build_candidates(MODEL, [of("image_q", "sum_q"), of("image_q", "both_q")])
    count = Counter(node.op_type for node in both.model.proto.graph.node)
    # In float, and once for the quantized image.
    assert (count["Conv"], count["Add"]) == (4, 2)
    assert (count["Concat"], count["Gemm"]) == (3, 3)
    # One for the image, one for each of the others.
    assert count["QuantizeLinear"] == 3


def test_the_same_candidate_twice_costs_nothing() -> None:
    once = build_candidates(MODEL, [list(QUANTIZERS)])
    twice = build_candidates(MODEL, [list(QUANTIZERS), list(QUANTIZERS)])
    assert len(twice.model.proto.graph.node) == len(once.model.proto.graph.node)
    for tensor, own in twice.taps.items():
        assert own[0] == own[1] == once.tap(tensor, 0)


def test_weights_are_quantized_once_and_before_the_run() -> None:
    built = build_candidates(MODEL, [of("w1_q"), of("w1_q", "w3_q")])
    proto = built.model.proto.graph
    assert len(proto.initializer) == len(MODEL.proto.graph.initializer) + 2
    assert not [node for node in proto.node if node.op_type == "QuantizeLinear"]


def test_many_weights_are_quantized_in_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = [of("w1_q"), of("w1_q", "b1_q", "w3_q")]
    _, baked = logits(choices)
    monkeypatch.setattr(module, "_MOST_BAKED_BYTES", 0)
    built = build_candidates(MODEL, choices)
    assert sum(node.op_type == "QuantizeLinear" for node in built.model.proto.graph.node) == 2
    _, computed = logits(choices)
    for one, other in zip(baked, computed, strict=True):
        assert np.allclose(one, other, rtol=1e-6, atol=1e-6)


def test_the_same_name_with_other_numbers_is_another_quantizer() -> None:
    (first,) = of("image_q")
    coarse = replace(first, params=replace(first.params, scale=first.params.scale * 4))
    _, (fine, rough) = logits([[first], [coarse]])
    assert not np.array_equal(fine, rough)
    assert np.array_equal(rough, run_model(insert_quantizers(MODEL, [coarse]), FEED)[0])
