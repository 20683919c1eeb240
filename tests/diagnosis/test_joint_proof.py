"""A finding of many places is measured at exactly the places it names."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from roundoff.core.quantizers import parameters_from_range
from roundoff.diagnosis.ideal import ideals
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import Case, Fixes, find_suspects, open_case
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from tests.diagnosis.planting import changed, demo, scaled


def spoilt(strongly: float, slightly: float) -> QuantizedModel:
    """All weights with wrong scales, every other one only a bit: those are like the others, and cost less."""
    quantized, _ = demo()
    weights = dict.fromkeys(each.tensor for each in quantized.quantizers if each.kind == "weight")
    for place, name in enumerate(weights):
        quantized = changed(quantized, name, scaled(slightly if place % 2 else strongly))
    return quantized


def put_right(case: Case, finding: Finding) -> Fixes:
    """The best weights of the same bits, at the places that a finding names and nowhere else."""
    fixes: Fixes = {}
    for each in ideals(case):
        best = each.best(settings=True)
        if each.suspect.kind == "weight" and each.suspect.tensor in finding.tensors and best is not None:
            fixes = {**fixes, **best.fixes}
    return fixes


@pytest.mark.parametrize("factors", [(0.25, 0.25), (0.25, 0.8), (6.0, 2.0)])
def test_decibels_and_share_are_those_of_the_named_places(factors: tuple[float, float]) -> None:
    quantized = spoilt(*factors)
    found = diagnose_quantization(quantized, demo()[1])
    joint = found.accused[0]
    assert joint.places == len(joint.accused_nodes) == len(joint.tensors) > 4
    assert all(len(each.tensors) == each.places == 1 for each in found.accused[1:])

    case = open_case(quantized, demo()[1])
    fixes = [put_right(case, each) for each in found.accused]
    assert [len(each) for each in fixes] == [each.places for each in found.accused]
    others = case.mend({name: each for part in fixes[1:] for name, each in part.items()})
    # What was found beside the joint finding may have been put right before it was measured, or after.
    proofs = [each.measures(fixes[0]) for each in (case, others)]
    assert joint.measures[0].after in [pytest.approx(proof[0].after, abs=1e-9) for proof in proofs]
    assert joint.measures[0].before in [pytest.approx(proof[0].before, abs=1e-9) for proof in proofs]

    alone = case.loss().value - case.mend(fixes[0]).loss().value
    everything = {name: each for part in fixes for name, each in part.items()}
    together = case.loss().value - case.mend(everything).loss().value
    assert joint.share == pytest.approx(alone / together, abs=5e-3)
    assert sum(each.share for each in found.accused) == pytest.approx(1.0)


def pooled_sqnr_db(model: Model, feeds: list[dict[str, Any]], exact: list[Any]) -> float:
    """Signal to noise of the first output over all samples as one tensor, as onnxruntime computes the model."""
    session = InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = [session.run(None, feed)[0].astype(np.float64) for feed in feeds]
    noise = sum(float(np.square(a - b).sum()) for a, b in zip(exact, found, strict=True))
    return 10 * math.log10(sum(float(np.square(each).sum()) for each in exact) / noise)


def test_calibration_is_measured_on_the_tensors_it_names() -> None:
    quantized, samples = demo()
    activations = list(dict.fromkeys(each.tensor for each in quantized.quantizers if each.kind == "activation"))
    for tensor in activations[: len(activations) * 2 // 3]:
        quantized = changed(quantized, tensor, scaled(0.15))
    finding = diagnose_quantization(quantized, samples).accused[0]
    assert finding.cause == "calibration-coverage"
    assert finding.remedy is not None
    assert set(finding.remedy.changes[0].tensors) == set(finding.tensors)
    assert 0 < len(finding.tensors) < len(activations)  # those that fit are neither named nor touched

    model = quantized.float_model
    feeds = [dict(samples.feed(index)) for index in range(len(samples.names))]
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    inner = [name for name in finding.tensors if name not in feeds[0] and name != model.proto.graph.output[0].name]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in inner)
    session = InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    held = [
        {**feed, **dict(zip([each.name for each in proto.graph.output], session.run(None, feed), strict=True))}
        for feed in feeds
    ]
    fixed = []
    groups = find_suspects(quantized)
    for each in quantized.quantizers:
        if each.tensor in finding.tensors:
            group = next(found.tensors for found in groups if each.name in found.quantizers)
            seen = [float(end(values[name])) for end in (np.min, np.max) for values in held[::2] for name in group]
            low, high = min(seen), max(seen)
            # An eighth of the range on each side that is not zero, for samples that were not seen.
            low, high = (end + np.sign(end) * (high - low) / 8 for end in (min(low, 0.0), max(high, 0.0)))
            spec = each.spec.along(None)
            each = replace(each, spec=spec, params=parameters_from_range(low, high, spec))  # noqa: PLW2901
        fixed.append(each)
    output = model.proto.graph.output[0].name
    exact = [values[output].astype(np.float64) for values in held[1::2]]
    before, after = (
        pooled_sqnr_db(switch_on(model, each), feeds[1::2], exact) for each in (quantized.quantizers, fixed)
    )
    assert finding.measures[0].before == pytest.approx(before, abs=0.02)
    assert finding.measures[0].after == pytest.approx(after, abs=0.02)
