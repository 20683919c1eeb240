"""Corrections of inputs in Pulsar2's words."""

import pytest

from roundoff.messages.message import verbatim
from roundoff.studies.check_io.result import Correction, Explanation, IoChange, IoCheck, StageCheck
from roundoff.vendors.pulsar2.config.document import fields_of, with_fields
from roundoff.vendors.pulsar2.config.schema import InputProcessor, OutputProcessor, message_fields


@pytest.mark.parametrize(
    ("facts", "fields"),
    [
        ((("layout", "NHWC"), ("training's layout", "NCHW")), "src_layout: NHWC, tensor_layout: NCHW"),
        ((("axes", "[0, 2, 1]"),), "dst_perm: [0, 2, 1]"),
        (
            (("mean", "[1]"), ("std", "[2]")),
            "mean: [1], std: [2] (mean and std on what the deployed side has now)",
        ),
        (
            (("mean", "[1]"), ("std", "[2]"), ("mean of pixels", "[127.5]"), ("std of pixels", "[128]")),
            "mean: [127.5], std: [128] (mean and std on pixels of 0..255)",
        ),
        ((("scale", "0.1"), ("zero point", "3")), "scale: 0.1, zeropoint: 3"),
        ((("element type", "int8"),), "src_dtype: S8"),
        ((("element type", "complex64"),), ""),
        ((("YUV matrix", "BT.601 full range"),), "csc_mode: FullRange"),
        ((("YUV matrix", "BT.709 full range"),), "csc_mode: Matrix"),
        ((("row stride", "9"),), ""),
    ],
)
def test_fields(facts: tuple[tuple[str, str], ...], fields: str) -> None:
    assert str(fields_of(Correction(verbatim("any"), verbatim("thing"), facts))) == fields
    known = {*message_fields(InputProcessor), *message_fields(OutputProcessor)}
    assert all(part.split(":")[0] in known for part in fields.split(", ") if ":" in part)


def test_a_whole_check() -> None:
    layout = Correction(verbatim("a"), verbatim("b"), (("layout", "NHWC"),))
    changes = (IoChange("layout", verbatim("x"), layout), IoChange("codes", verbatim("y")))
    explanation = Explanation(changes, True, 1.0, 0.0, 0.0, 1)
    stage = StageCheck("output", 1e-3, 1, False, 1.0, 1.0, explanation=explanation)
    found = with_fields(IoCheck((stage, StageCheck("result", 1e-3, 1, True, 0.0, 0.0)))).stages
    assert found[0].explanation is not None
    first = found[0].explanation.changes[0].correction
    assert first is not None
    assert str(first.fields) == "Pulsar2: src_layout: NHWC"
    assert found[1].explanation is None
