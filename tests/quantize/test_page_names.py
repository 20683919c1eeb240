"""A name is a name in every language: reasons and notes are keys with arguments, and nothing is parsed."""

from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from roundoff.graph.load import Model
from roundoff.measure.verdicts import ThresholdSet
from roundoff.messages.catalogue import use_language
from roundoff.messages.message import shown
from roundoff.pages.blocks import TableBlock
from roundoff.quantize.page import quantization_page
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.planning.rules import parse_rule
from roundoff.quantize.targets.files import load_target
from tests.models import loaded, value, wrapped
from tests.run.samples import MemorySamples

CHINESE = "其输出以 u16 存储\uff1alast 以 u16 读取"
ODD = """conv (3x3); it's "odd\""""


def odd_model(folder: Path) -> Model:
    """Two products, the first of an odd name."""
    held = [numpy_helper.from_array(np.eye(3, dtype=np.float32), name) for name in ("w", "v")]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name=ODD),
        helper.make_node("MatMul", ["h", "v"], ["y"], name="last"),
    ]
    return loaded(wrapped(nodes, [value("x", (1, 3))], [value("y")], held), folder)


def test_reasons_of_a_plan_are_chinese_and_keep_names(tmp_path: Path) -> None:
    rules = (parse_rule("last=u16"),)
    samples = MemorySamples([{"x": np.ones((1, 3), np.float32) * scale} for scale in (1, 2, 3)])
    settings = QuantizeSettings(load_target("generic-int8"), rules=rules)
    result = quantize_model(odd_model(tmp_path), samples, settings)
    [reason] = [each.reason for each in result.best.plan.nodes if each.node == ODD]
    assert str(reason) == "its output is stored as u16: last reads it as u16"
    with use_language("zh"):
        assert shown(reason) == CHINESE
    page = quantization_page(result, ThresholdSet("none", ()), model="m")
    table = next(each for each in page.blocks if isinstance(each, TableBlock) and each.id == "nodes")
    [row] = [each for each in table.rows if each[0] == ODD]
    assert row[-1].zh == CHINESE  # type: ignore[union-attr]


def test_an_odd_name_in_a_reason_stays_what_it_is_in_chinese(tmp_path: Path) -> None:
    samples = MemorySamples([{"x": np.ones((1, 3), np.float32)}] * 2)
    settings = QuantizeSettings(
        load_target("generic-int8"), rules=(parse_rule("last=float"), parse_rule("tensor:h=u8"))
    )
    result = quantize_model(odd_model(tmp_path), samples, settings)
    [reason] = [each.reason for each in result.best.plan.nodes if each.node == "last"]
    assert str(reason) == f"what it reads of {ODD} is stored as u8"
    assert reason.within("zh") == f"它从 {ODD} 读取的值以 u8 存储"
