"""Faults that quantizers do not show: in the file itself, and in sums that do not fit their register."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from roundoff.case.anonymous import without_names
from roundoff.case.file_fault import is_accumulator, is_of_file, reproduce_accumulator, reproduce_file
from roundoff.case.minimal import NotLocal
from roundoff.case.reproducer import Reproducer, verify, write_reproducer
from roundoff.core.target import Arithmetic
from roundoff.diagnosis.file_check import check_file, check_sums
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.subject import Case, open_case
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.reading.read import read_quantized
from roundoff.messages.message import verbatim
from tests.diagnosis.planting import biased, demo, for_target


def shown(found: Reproducer, finding: Finding, folder: Path) -> None:
    """It must fail alone, pass on what is expected, and the whole must be better without it."""
    for name, each in (("named", found), ("anonymous", without_names(found))):
        (folder / name).mkdir()
        write_reproducer(folder / name, each, finding)
        checked = verify(folder / name)
        assert (checked.shows, checked.passes) == (True, True), checked.text
    assert found.passes
    assert found.complement is not None
    assert found.complement.improved
    assert found.faulty_db < found.threshold_db < found.mended_db


def edited(input_at: int, change: float) -> tuple[Case, Model]:
    """The demo's file with another scale, or zero point, where one tensor is dequantized."""
    quantized, samples = demo()
    proto = insert_quantizers(quantized.float_model, quantized.quantizers).proto
    constants = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    makers = {name: node for node in proto.graph.node for name in node.output}
    node = next(
        each
        for each in proto.graph.node
        if each.op_type == "DequantizeLinear" and makers[each.input[0]].input[0].startswith("block2/relu")
    )
    other = np.asarray(constants[node.input[input_at]] * (change if input_at == 1 else 1))
    other = other if input_at == 1 else (other.astype(np.int64) + int(change)).astype(other.dtype)
    proto.graph.initializer.append(numpy_helper.from_array(other, "other"))
    node.input[input_at] = "other"
    given = model_from_proto(proto, path=Path("edited.onnx"))
    return open_case(read_quantized(given), samples), given


@pytest.mark.parametrize(("input_at", "change"), [(1, 1.6), (2, 40)], ids=["scale", "zero point"])
def test_a_node_of_the_file_shows_a_wrong_dequantization(input_at: int, change: float, tmp_path: Path) -> None:
    case, given = edited(input_at, change)
    _, finding, _ = check_file(case, given)
    assert finding is not None
    assert is_of_file(case, given, finding)
    found = reproduce_file(case, given, finding)
    assert len(found.nodes) == 1
    assert "block2/relu" in set(case.facts.nodes[found.nodes[0][0]].input)
    assert found.mended_db - found.faulty_db > 10
    shown(found, finding, tmp_path)


def test_other_findings_are_not_the_files() -> None:
    case, given = edited(1, 1.6)
    assert not is_of_file(case, given, Finding(1, "clipping", ("block2/relu",), ("block2/relu",), verbatim("")))
    with pytest.raises(NotLocal, match="No single node of the file shows finding 1"):
        reproduce_file(case, given, Finding(1, "clipping", ("logits",), (), verbatim("")))


def test_a_sum_that_does_not_fit_is_shown_in_integers(tmp_path: Path) -> None:
    quantized, samples = for_target(*biased())
    case = open_case(quantized, samples, arithmetic=Arithmetic(accumulator_bits=16, overflow="wrap"))
    finding = check_sums(case, ["conv1", "conv2"])
    assert finding is not None
    assert is_accumulator(finding)
    found = reproduce_accumulator(case, replace(finding, number=1))
    assert len(found.nodes) == 1
    assert found.nodes[0][0] in finding.nodes
    assert "16 bits that wrap" in found.observer
    shown(found, finding, tmp_path)


def test_sums_that_fit_are_not_shown() -> None:
    case = open_case(*for_target(*biased()), arithmetic=Arithmetic(accumulator_bits=32))
    finding = Finding(1, "overflow", ("conv1",), (), verbatim(""), evidence={"worst_ratio": 2.0})
    with pytest.raises(NotLocal, match="No node of finding 1"):
        reproduce_accumulator(case, finding)
