"""Each cause: a planted fault is found, named and proven; a clean network is not accused."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from onnx import helper

from roundoff.core.quantizers import Quantizer, QuantParams, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.ideal import IdealOption, options
from roundoff.diagnosis.interventions import reach, times_wider
from roundoff.diagnosis.registry import CauseOf, all_causes, cause
from roundoff.diagnosis.result import Diagnosis, Finding
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.run.bench import FEW_SAMPLES, spread
from roundoff.run.evaluators import make_run
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.planting import (
    biased,
    changed,
    coded,
    demo,
    detector,
    for_target,
    narrower,
    scaled,
    unbalanced,
)
from tests.models import value, weight, wrapped


def only(found: Diagnosis) -> Finding:
    """The one finding; it must be proven with numbers that got better, and come with a remedy."""
    assert found.kind == "culprits", found.verdict
    (finding,) = found.accused
    assert finding.measures[0].improved
    assert finding.measures[0].samples > 0
    assert finding.intervention
    assert finding.summary
    assert finding.remedy is not None
    return finding


def diagnosed(quantized: QuantizedModel) -> Diagnosis:
    return diagnose_quantization(quantized, demo()[1])


def test_a_clean_network_is_healthy() -> None:
    found = diagnosed(demo()[0])
    assert (found.kind, found.accused, found.victims) == ("healthy", (), ())
    assert "no fault found" in str(found.verdict)


@pytest.mark.parametrize("target", ["generic-int8", "generic-int8-per-tensor", "onnxruntime", "axera-ax650"])
def test_clean_networks_are_healthy_on_many_chips(target: str) -> None:
    found = diagnose_quantization(*for_target(*unbalanced(1.0), target))
    assert (found.kind, found.accused) == ("healthy", ())


def test_a_range_that_is_too_small_is_clipping() -> None:
    finding = only(diagnosed(changed(demo()[0], "block3/relu", scaled(0.1))))
    assert (finding.cause, finding.nodes[0], finding.tensors[0]) == ("clipping", "block3/relu", "block3/relu")
    assert finding.remedy is not None
    assert finding.remedy.changes[0].kind == "range"
    assert finding.remedy.cost == "free"
    assert finding.evidence["clipped_energy_share"] > 0.9


def test_a_weight_that_is_cut_off_is_clipping() -> None:
    finding = only(diagnosed(changed(demo()[0], "block2/pointwise/weight", scaled(0.1))))
    assert (finding.cause, finding.nodes[0]) == ("clipping", "block2/pointwise")


def test_a_wrong_zero_point_is_clipping() -> None:
    def moved(quantizer: Quantizer) -> Quantizer:
        return replace(quantizer, params=QuantParams(quantizer.params.scale, np.array(230)))

    finding = only(diagnosed(changed(demo()[0], "block1/relu", moved)))
    assert (finding.cause, finding.nodes[0]) == ("clipping", "block1/relu")


def test_a_range_that_is_far_too_wide_is_resolution() -> None:
    finding = only(diagnosed(changed(demo()[0], "block3/relu", scaled(40.0))))
    assert (finding.cause, finding.nodes[0]) == ("resolution", "block3/relu")
    assert "times as wide as its values" in str(finding.summary)
    assert finding.remedy is not None
    assert finding.remedy.changes[0].kind == "range"


@pytest.mark.parametrize("tensor", ["block3/relu", "block2/pointwise/weight"])
def test_fewer_bits_than_others_is_resolution(tensor: str) -> None:
    finding = only(diagnosed(changed(demo()[0], tensor, narrower(2))))
    assert (finding.cause, finding.tensors[0]) == ("resolution", tensor)
    assert str(finding.summary).endswith("has 2 bits where others have 8")


def test_codes_that_are_not_those_of_the_weights_are_named() -> None:
    def spoilt(codes: Array) -> Array:
        codes[::2] = -codes[::2]
        return codes

    finding = only(diagnosed(coded(demo()[0], "block2/pointwise/weight", spoilt)))
    assert (finding.cause, finding.nodes[0]) == ("corrupted-weights", "block2/pointwise")
    assert "are not those of the float weights" in str(finding.summary)


@pytest.mark.parametrize("factor", [0.5, 0.0625, 4.0])
def test_codes_of_another_scale_are_told_from_corrupted_ones(factor: float) -> None:
    name = "block2/pointwise/weight"
    finding = only(diagnosed(changed(coded(demo()[0], name, lambda codes: codes), name, scaled(factor))))
    assert (finding.cause, finding.nodes[0]) == ("wrong-dequantization", "block2/pointwise")
    assert f"{factor:.3g} times what" in str(finding.summary)
    healthy = diagnosed(demo()[0]).measures[0].before
    assert finding.measures[0].after == pytest.approx(healthy, abs=0.5)


def test_codes_that_are_all_rounded_down_shift_the_mean() -> None:
    coarse = changed(demo()[0], "block1/pointwise/weight", scaled(6.0))
    finding = only(diagnosed(coded(coarse, "block1/pointwise/weight", lambda codes: codes, rounding="floor")))
    assert (finding.cause, finding.nodes[0]) == ("bias-shift", "block1/pointwise")


def test_one_scale_for_unequal_channels_of_a_weight() -> None:
    found = diagnose_quantization(*for_target(*unbalanced(300.0), "generic-int8-per-tensor"))
    assert found.kind == "culprits"
    assert {each.cause for each in found.accused} == {"outlier-channel"}
    assert {"conv1", "relu1"} & {name for each in found.accused for name in each.nodes}


def test_one_scale_for_unequal_channels_of_an_activation() -> None:
    found = diagnose_quantization(*for_target(*unbalanced(300.0), "generic-int8"))
    first = found.accused[0]
    assert (found.kind, first.cause) == ("culprits", "outlier-channel")
    assert {"r1", "w2"} & set(first.tensors)


def test_boxes_and_scores_in_one_output_are_a_mixed_range() -> None:
    found = diagnose_quantization(*for_target(*detector(640.0)))
    finding = found.accused[0]
    assert (found.kind, finding.cause, finding.nodes[0]) == ("culprits", "mixed-range", "join")
    assert "'scores'" in str(finding.measures[0].what)
    assert diagnose_quantization(*for_target(*detector(1.0))).kind == "healthy"


def test_a_bias_that_is_not_that_of_the_model() -> None:
    quantized, samples = for_target(*biased())
    bias = next(each for each in quantized.quantizers if each.kind == "bias")
    off = coded(quantized, bias.tensor, lambda codes: codes + int(3 / float(np.max(bias.params.scale))))
    finding = only(diagnose_quantization(off, samples))
    assert (finding.cause, finding.nodes[0]) == ("bias-shift", "conv1")


def test_a_bias_that_does_not_fit_overflows() -> None:
    quantized, samples = for_target(*biased())
    bias = next(each for each in quantized.quantizers if each.kind == "bias")
    finding = only(diagnose_quantization(changed(quantized, bias.tensor, scaled(1e-9)), samples))
    assert (finding.cause, finding.nodes[0]) == ("overflow", "conv1")
    assert "times what 32 bits hold" in str(finding.summary)


def test_samples_unlike_those_of_calibration() -> None:
    quantized, samples = demo()
    for tensor in [each.tensor for each in quantized.quantizers if each.kind == "activation"]:
        quantized = changed(quantized, tensor, scaled(0.15))
    found = diagnose_quantization(quantized, samples)
    finding = found.accused[0]
    assert (found.kind, finding.cause) == ("culprits", "calibration-coverage")
    assert finding.remedy is not None
    assert finding.remedy.changes[0].kind == "recalibrate"
    assert "measured on" in str(finding.intervention)


def all_wider(quantized: QuantizedModel, times: float) -> QuantizedModel:
    """Every range of an activation so many times as wide."""

    def change(each: Quantizer) -> Quantizer:
        low, high = (times * end for end in reach(each))
        return replace(each, params=parameters_from_range(low, high, each.spec))

    activations = (each.kind == "activation" for each in quantized.quantizers)
    found = (change(each) if own else each for each, own in zip(quantized.quantizers, activations, strict=True))
    return replace(quantized, quantizers=tuple(found))


def test_ranges_that_are_all_too_wide_are_found_though_outputs_keep_their_limits() -> None:
    """Three times: no single range is far too wide. Twice: other samples may need that, and it is said."""
    quantized, samples = for_target(*biased())
    kept = diagnose_quantization(quantized, samples).measures[0].before
    found = diagnose_quantization(all_wider(quantized, 3.0), samples)
    finding = only(found)
    assert finding.cause == "calibration-coverage"
    assert 20 < finding.measures[0].before < kept - 4
    assert finding.measures[0].after == pytest.approx(kept, abs=2.5)
    said = diagnose_quantization(all_wider(quantized, 2.0), samples)
    assert said.kind == "healthy"
    told = re.search(r"about ([\d.]+) times as wide as these samples reach, ([\d.]+) dB", str(said.verdict))
    assert told is not None
    assert float(told[1]) == pytest.approx(2.0, abs=0.2)
    assert float(told[2]) == pytest.approx(kept, abs=1)
    assert "times as wide" not in str(diagnose_quantization(quantized, samples).verdict)


def uneven(count: int, seed: int) -> dict[str, Array]:
    """Pictures of which some are several times as bright as most."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((count, 3, 8, 8)) * rng.gamma(2.0, 0.5, (count, 1, 1, 1))
    return {"x": values.astype(np.float32)}


def test_ranges_of_many_samples_are_not_held_against_a_file_that_is_seen_by_few() -> None:
    """Calibrated on 600 pictures, of which 24 are at hand: these reach half as far, and nobody is to blame."""
    model, few = biased()[0], ArraySamples(uneven(24, 1))
    quantized, _ = for_target(model, uneven(600, 2))
    case = open_case(quantized, few)
    facts = case.facts
    suspects = [each for each in facts.suspects if each.tensor in facts.observed]
    beyond = [times_wider(facts.quantizers[each.name], facts.observed[each.tensor].range) for each in suspects]
    assert max(beyond) > 1.5
    found = diagnose_quantization(quantized, few)
    assert (found.kind, found.accused) == ("healthy", ())
    # Three times as wide as those is a fault, or at least no good word.
    assert diagnose_quantization(all_wider(quantized, 3.0), few).kind in ("culprits", "not_enough_evidence")


def test_copies_of_one_sample_accuse_nobody_of_ranges_they_do_not_fill() -> None:
    model = biased()[0]
    quantized, _ = for_target(model, uneven(200, 2))
    copies = {"x": np.repeat(uneven(1, 3)["x"], 8, axis=0)}
    found = diagnose_quantization(quantized, ArraySamples(copies))
    assert (found.kind, found.accused) == ("not_enough_evidence", ())


def test_samples_that_are_one_number_all_over_accuse_nobody() -> None:
    quantized, _ = for_target(biased()[0], uneven(200, 2))
    for level in (0.0, 0.5):
        blank = ArraySamples({"x": np.full((8, 3, 8, 8), level, np.float32)})
        for made in (quantized, all_wider(quantized, 8.0)):
            assert diagnose_quantization(made, blank).kind == "not_enough_evidence"


def test_what_samples_lose_that_ranges_do_not_know_is_said() -> None:
    """The same by hand: quantized anew without each sixth of the samples, which are then run."""
    model, arrays = biased()[0], uneven(24, 1)
    quantized, samples = for_target(model, arrays)
    signal = noise = 0.0
    for turn in range(6):
        rest = [at for at in range(24) if at % 6 != turn]
        again, _ = for_target(model, {"x": arrays["x"][rest]})
        networks = [make_run(each) for each in (model, switch_on(model, again.quantizers))]
        for at in range(turn, 24, 6):
            exact, made = (run({"x": arrays["x"][at : at + 1]})["y"].astype(np.float64) for run in networks)
            signal, noise = signal + float((exact**2).sum()), noise + float(((exact - made) ** 2).sum())
    by_hand = 10 * np.log10(signal / noise)
    found = diagnose_quantization(quantized, samples)
    told = re.search(r"output SQNR ([\d.]+) dB.*; ([\d.]+) dB on samples that its ranges", str(found.verdict))
    assert found.kind == "healthy"
    assert told is not None, found.verdict
    assert float(told[2]) == pytest.approx(by_hand, abs=0.7)
    assert float(told[2]) < float(told[1]) - 3
    # Of a file that was calibrated on others nothing is left out.
    other, _ = for_target(model, uneven(600, 2))
    assert "were not found on" not in str(diagnose_quantization(other, samples).verdict)


def test_the_range_of_a_file_is_kept_as_far_as_rarer_samples_may_reach() -> None:
    model, few = biased()[0], ArraySamples(uneven(24, 1))
    quantized, _ = for_target(model, uneven(24, 1))
    for times, kept in ((1.2, True), (3.0, False), (10.0, False)):
        case = open_case(all_wider(quantized, times), few)
        suspect = next(each for each in case.facts.suspects if each.tensor == "r1")
        own, seen = reach(case.facts.quantizers[suspect.name]), case.facts.observed["r1"].range
        needed = case.facts.value_range(suspect)
        assert needed[1] == pytest.approx(own[1] if kept else seen[1], rel=1e-6), times
        assert case.facts.value_range(suspect, rarer=False)[1] == pytest.approx(seen[1])


def test_a_loss_that_adds_up_has_no_culprits() -> None:
    quantized, samples = demo()
    for tensor in [each.tensor for each in quantized.quantizers if each.kind == "activation"]:
        quantized = changed(quantized, tensor, narrower(4))
    found = diagnose_quantization(quantized, samples)
    assert (found.kind, [each.cause for each in found.accused]) == ("distributed", ["accumulated-error"])
    assert "many layers lose a little each" in str(found.verdict)


def test_a_fault_that_another_hides_is_found_too() -> None:
    spoilt = changed(demo()[0], "stem/relu", scaled(0.02))
    spoilt = changed(spoilt, "block4/relu", narrower(2))
    found = diagnosed(spoilt)
    assert {(each.cause, each.tensors[0]) for each in found.accused} == {
        ("clipping", "stem/relu"),
        ("resolution", "block4/relu"),
    }
    assert all(each.measures[0].improved for each in found.accused)


def test_a_tensor_next_to_zero_is_an_artefact_and_accuses_nobody() -> None:
    quantized, samples = for_target(*_with_whisper())
    found = diagnose_quantization(changed(quantized, "faint", scaled(64.0)), samples)
    assert (found.kind, found.accused) == ("healthy", ())
    assert [(each.cause, each.tensors[0]) for each in found.findings] == [("metric-artefact", "faint")]


def _with_whisper() -> tuple[Model, dict[str, Array]]:
    from pathlib import Path

    from onnx import helper

    from roundoff.graph.load import model_from_proto
    from tests.diagnosis.planting import numpy_tensor

    model, arrays = unbalanced(1.0)
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    graph.initializer.append(numpy_tensor("tiny", np.float32(1e-4)))
    graph.node[3].input[0] = "sum"
    graph.node.insert(3, helper.make_node("Mul", ["c2", "tiny"], ["faint"], name="whisper"))
    graph.node.insert(4, helper.make_node("Add", ["c2", "faint"], ["sum"], name="sum"))
    return model_from_proto(proto, path=Path("whisper.onnx")), arrays


def test_victims_are_listed_apart() -> None:
    found = diagnosed(changed(demo()[0], "block1/relu", scaled(0.05)))
    assert "block1/relu" not in found.victims
    assert set(found.victims) & {"block2/relu", "block3/relu", "block4/relu"}


@pytest.mark.parametrize(("of", "count"), [("quantization", 17), ("file", 5), ("device", 13)])
def test_every_cause_says_what_it_is_in_a_sentence(of: CauseOf, count: int) -> None:
    kinds = list(all_causes(of))
    assert len(kinds) == count
    assert {each.of for each in kinds} == {of}
    assert all(each.summary.endswith(".") and each.order for each in kinds)
    assert [each.order for each in kinds] == sorted(each.order for each in kinds)


def test_every_cause_is_in_the_reference() -> None:
    pages = [Path(__file__).parents[2] / f"docs/reference/{name}.md" for name in ("diagnose", "diagnose-dumps")]
    text = "".join(page.read_text("utf-8") for page in pages)
    assert [each.name for of in get_args(CauseOf) for each in all_causes(of) if each.name not in text] == []


def test_a_cause_is_registered_once() -> None:
    class Another:
        """Another."""

    with pytest.raises(ValueError, match="registered twice"):
        cause("clipping", of="quantization", order=1)(Another)  # type: ignore[type-var]


def test_samples_that_are_not_processed_as_the_model_was_calibrated() -> None:
    model, arrays = unbalanced(1.0)
    pictures = np.clip(np.abs(arrays["x"]) * 80, 0, 255).astype(np.float32)
    quantized, _ = for_target(model, {"x": pictures / 255})
    finding = only(diagnose_quantization(quantized, ArraySamples({"x": pictures})))
    assert (finding.cause, finding.tensors) == ("preprocessing", ("x",))
    # The samples are vouched for: it is shown that ranges for them help, on samples the ranges were not found on.
    assert re.fullmatch(
        r"ranges of \d+ activations found again on 12 of the samples with a margin of 1/8 or more, "
        r"measured on 12 others",
        str(finding.intervention),
    )
    assert finding.remedy is not None
    assert (finding.remedy.cost, finding.remedy.changes[0].kind) == ("free", "recalibrate")
    assert finding.remedy.changes[0].value == "x / 255"


def test_a_sum_with_fewer_bits_than_others_is_resolution_whatever_it_adds_up() -> None:
    model, arrays = _with_whisper()
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    relu = next(node for node in proto.graph.node if node.name == "relu2")
    relu.op_type = "Sigmoid"  # which no chip computes together with the sum before it
    quantized, samples = for_target(model_from_proto(proto, path=model.path), arrays)
    finding = only(diagnose_quantization(changed(quantized, "sum", narrower(2)), samples))
    assert (finding.cause, finding.nodes[0]) == ("resolution", "sum")


@pytest.mark.parametrize(("factor", "cause"), [(0.08, "clipping"), (25.0, "resolution")])
def test_a_wrong_range_of_channels_of_different_size_is_no_matter_of_channels(factor: float, cause: str) -> None:
    quantized, samples = for_target(*unbalanced(6.0))
    finding = only(diagnose_quantization(changed(quantized, "r1", scaled(factor)), samples))
    assert (finding.cause, finding.tensors[0]) == (cause, "r1")
    assert finding.remedy is not None
    assert finding.remedy.changes[0].kind == "range"


def test_what_few_large_channels_lose_is_seen_next_to_many_small_ones() -> None:
    wider = IdealOption("range", {}, loss=0.07, ratio=0.001, setting=True)
    assert wider.is_better(0.04, 0.3)  # small channels lose more, and the tensor as a whole far less
    assert wider.is_better(0.2, 0.001)
    assert not wider.is_better(0.04, 0.005)


def test_samples_in_which_a_fault_shows_are_looked_at() -> None:
    model, arrays = unbalanced(1.0)
    images = np.concatenate([arrays["x"], arrays["x"] * 0.9])[:32]
    images[6] *= 12
    quantized, samples = for_target(model, {"x": images})
    case = open_case(changed(quantized, "r1", scaled(0.08)), samples)
    assert 6 not in spread(32, FEW_SAMPLES)
    assert 6 in case.runner.few()
    assert 4 <= len(set(case.runner.few())) <= FEW_SAMPLES


def test_more_bits_have_codes_for_what_few_bits_had_none_for() -> None:
    """With 3 bits the negative tail has no code at all; more bits over that range would not bring it back."""
    model, arrays = biased()
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    proto.graph.node[1].op_type = "LeakyRelu"
    proto.graph.node[1].attribute.append(helper.make_attribute("alpha", 0.03))
    quantized, samples = for_target(model_from_proto(proto, path=model.path), arrays)
    case = open_case(changed(quantized, "r1", narrower(3)), samples)
    suspect = next(each for each in case.facts.suspects if each.tensor == "r1")
    assert reach(case.facts.quantizers[suspect.name])[0] == 0
    found = {each.kind: each.fixes[suspect.name] for each in options(case.facts, suspect)[1]}
    wider = found["bits"]
    assert wider is not None
    assert wider.spec.bits == 8
    assert reach(wider)[0] == pytest.approx(case.facts.value_range(suspect)[0], rel=0.1)


@pytest.mark.parametrize(("end", "asked_for"), [(1.0, True), (4.0, False)])
def test_the_range_that_a_kernel_asks_for_is_no_mere_setting(end: float, asked_for: bool) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="dense"),
        helper.make_node("Softmax", ["a"], ["p"], name="softmax"),
        helper.make_node("MatMul", ["p", "v"], ["y"], name="mix"),
    ]
    constants = [weight("w", 16, 40), weight("v", 40, 8)]
    proto = wrapped(nodes, [value("x", (1, 16))], [value("y", (1, 8))], constants)
    data = rng.standard_normal((16, 16)).astype(np.float32) * 0.1
    quantized, samples = for_target(model_from_proto(proto, path=Path("softmax.onnx")), {"x": data})

    def fixed(quantizer: Quantizer) -> Quantizer:
        return replace(quantizer, params=parameters_from_range(0.0, end, quantizer.spec))

    case = open_case(changed(quantized, "p", fixed), samples)
    suspect = next(each for each in case.facts.suspects if each.tensor == "p")
    (setting,) = (each.setting for each in options(case.facts, suspect)[1] if each.kind == "range")
    assert setting is not asked_for
