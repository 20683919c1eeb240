"""plan.json: what is written is read back, and damage is said."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.plan import NodePlan, PlannedQuantizer, Precision, QuantPlan, Resolution, Rule
from roundoff.core.quantizers import Consumer, QuantParams, QuantSpec
from roundoff.core.target import Arithmetic
from roundoff.errors import BadInput
from roundoff.messages.message import message, verbatim
from roundoff.quantize.parameters import QuantNumbers, planned_with
from roundoff.quantize.plan_file import PLAN_NAME, SavedPlan, load_plan, plan_json, saved_numbers

U8 = QuantSpec(8, signed=False, symmetric=False)
S8 = QuantSpec(8, signed=True, symmetric=True, axis=0)
RULE = Rule("op", ("Conv",), Precision(activation="u16"))
PLAN = QuantPlan(
    target="t",
    quantizers=(
        PlannedQuantizer("x", "x", "activation", U8, (Consumer("c", 0),)),
        PlannedQuantizer("w", "w", "weight", S8, (Consumer("c", 1),)),
    ),
    nodes=(NodePlan("c", "Conv", "c", Precision("u16"), Precision("u8"), message("quantize.why_in_float")),),
    resolutions=(Resolution(RULE, ("c",), (), {"c": message("quantize.why_in_float")}),),
)
SCALES = {"x": np.float32(0.1), "w": np.array([1e-30, 3.0000001, 2**-126], dtype=np.float32)}
PARAMS = {
    "x": QuantParams(np.asarray(SCALES["x"]), np.asarray(np.int64(113))),
    "w": QuantParams(np.asarray(SCALES["w"]), np.zeros(3, dtype=np.int64)),
}
NUMBERS = QuantNumbers(tuple(planned_with(each, PARAMS[each.name]) for each in PLAN.quantizers), ())
SAVED = SavedPlan(
    schema=1,
    roundoff="0",
    model="模型.onnx",
    model_sha256="ab",
    method="mse",
    samples=7,
    arithmetic=Arithmetic(tables=frozenset({"Sigmoid"})),
    plan=PLAN,
    numbers=saved_numbers(NUMBERS),
    files={"deploy": "d.onnx"},
    notes=(verbatim("a note"),),
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    (tmp_path / PLAN_NAME).write_text(plan_json(SAVED), encoding="utf-8")
    assert load_plan(tmp_path) == SAVED
    assert load_plan(tmp_path / PLAN_NAME) == SAVED


def test_scales_survive_bit_for_bit(tmp_path: Path) -> None:
    (tmp_path / PLAN_NAME).write_text(plan_json(SAVED), encoding="utf-8")
    for got, meant in zip(load_plan(tmp_path).quantizers(), NUMBERS.quantizers, strict=True):
        assert (got.name, got.spec, got.consumers) == (meant.name, meant.spec, meant.consumers)
        assert got.params.scale.dtype == np.float32
        assert got.params.scale.shape == meant.params.scale.shape
        np.testing.assert_array_equal(got.params.scale, meant.params.scale)
        np.testing.assert_array_equal(got.params.zero_point, meant.params.zero_point)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 99}, "has schema 99"),
        ({"plan": 3}, "is not a plan"),
        ({"numbers": {}}, "no usable scale and zero point for the quantizer 'x'"),
        ({"numbers": {"x": {"scale": [0.0], "zero_point": [0]}}}, "no usable scale"),
        ({"numbers": {"x": {"scale": [1.0], "zero_point": [999]}}}, "no usable scale and zero point"),
        ({"numbers": {"x": {"scale": [1.0, 2.0], "zero_point": [0, 0]}}}, "no usable scale"),
    ],
)
def test_damage_is_said(tmp_path: Path, change: dict[str, object], said: str) -> None:
    content = json.loads(plan_json(SAVED)) | change
    (tmp_path / PLAN_NAME).write_text(json.dumps(content))
    with pytest.raises(BadInput, match=said):
        load_plan(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff\xfe", "[" * 100_000])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / PLAN_NAME).write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput, match=r"plan\.json"):
        load_plan(tmp_path)


@pytest.mark.parametrize("bits", [-1, 0, 10**9])
def test_codes_have_a_width(tmp_path: Path, bits: int) -> None:
    content = json.loads(plan_json(SAVED))
    content["plan"]["quantizers"][0]["spec"]["bits"] = bits
    (tmp_path / PLAN_NAME).write_text(json.dumps(content))
    with pytest.raises(BadInput, match="no usable scale"):
        load_plan(tmp_path)


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        load_plan(tmp_path)


def test_numbers_json_lacks_are_never_written() -> None:
    bad = replace(SAVED, numbers={"x": replace(SAVED.numbers["x"], scale=(float("inf"),))})
    with pytest.raises(ValueError, match="not JSON compliant"):
        plan_json(bad)
