"""Targets: the shipped ones keep their promises, files of one's own are checked."""

import math
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.quantizers import QuantSpec, parameters_from_range
from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.graph.patterns import PATTERNS
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.planning.view import NEEDS
from roundoff.quantize.targets.files import load_target, target_names
from tests.contracts.target import TargetContract, check_plan
from tests.real_models import real_models

ASKED_FOR = {
    "generic-int8",
    "generic-int8-per-tensor",
    "onnxruntime",
    "axera-ax650",
    "ascend",
    "horizon-bayes",
    "rknn",
    "sophgo-bm1684x",
    "qualcomm-htp",
    "tensorrt-like",
    "litert",
    "generic-power-of-two",
}


# A file beside the others is held to the contract without being named here.
for _name in target_names():
    globals()[f"Test_{_name}"] = type(f"Test_{_name}", (TargetContract,), {"name": _name})


def test_the_targets_that_were_asked_for_are_shipped() -> None:
    assert set(target_names()) >= ASKED_FOR


@pytest.mark.parametrize("path", real_models())
def test_plans_for_real_networks_are_sound(path: Path) -> None:
    model = load_model(path)
    for name in ("generic-int8", "axera-ax650", "litert"):
        target = load_target(name)
        check_plan(plan_quantization(model, target), model, target)


def scale(spec: QuantSpec, low: float, high: float) -> float:
    return float(parameters_from_range(low, high, spec).scale)


def test_axera_divides_by_half_the_span() -> None:
    target = load_target("axera-ax650")
    assert scale(target.weights["s8"], -1.0, 0.5) == np.float32(1 / 127.5)
    assert scale(target.activations["s16"], -1.0, 0.5) == np.float32(1 / 32767.5)
    assert target.live_operand is not None
    assert scale(target.live_operand, -1.0, 0.5) == np.float32(1 / 127.5)
    assert scale(target.activations["u8"], -1.0, 0.5) == np.float32(1.5 / 255)
    assert target.activation == "u8"
    assert target.calibration.weights_first
    assert target.only["activation.float"] == {
        "LeakyRelu", "Sigmoid", "Relu", "Add", "Mul", "Div", "Sub", "Concat", "Softmax",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-0.5, 1.0, 1 / 127), (-1.0, 0.5, 1 / 128), (-1e-9, 1e-9, 1.0)],
)
def test_ascend_divides_by_the_limit_of_the_larger_side(low: float, high: float, expected: float) -> None:
    target = load_target("ascend")
    assert scale(target.weights["s8"], low, high) == np.float32(expected)
    assert target.calibration.method == "ifmr"
    assert target.float_results


def test_ascend_offsets_activations() -> None:
    params = parameters_from_range(-0.5, 1.0, load_target("ascend").activations["s8"])
    assert float(params.scale) == np.float32(0.00588235294)
    assert int(params.zero_point) == -43


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("Softmax", (1 / 256, -128)),
        ("Sigmoid", (1 / 256, -128)),
        ("Tanh", (1 / 128, 0)),
        ("LogSoftmax", (1 / 16, 127)),
    ],
)
def test_litert_fixes_the_outputs_of_functions(operation: str, expected: tuple[float, int]) -> None:
    target = load_target("litert")
    params = parameters_from_range(*target.fixed_ranges[operation], target.activations["s8"])
    assert (float(params.scale), int(params.zero_point)) == expected


def test_litert_weights_leave_out_the_lowest_code() -> None:
    spec = load_target("litert").weights["s8"]
    assert (spec.code_min, spec.code_max, spec.symmetric) == (-127, 127, True)


def test_powers_of_two_are_powers_of_two() -> None:
    target = load_target("generic-power-of-two")
    for spec in (*target.activations.values(), *target.weights.values()):
        assert math.log2(scale(spec, -0.3, 0.7)).is_integer()


def test_onnxruntime_is_what_quantize_static_documents() -> None:
    import inspect

    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    defaults = {
        name: parameter.default for name, parameter in inspect.signature(quantize_static).parameters.items()
    }
    assert defaults["quant_format"] == QuantFormat.QDQ
    assert defaults["calibrate_method"] == CalibrationMethod.MinMax
    assert defaults["activation_type"] == defaults["weight_type"] == QuantType.QInt8
    assert defaults["reduce_range"] is False
    target = load_target("onnxruntime")
    assert (target.activation, target.weight, target.calibration.method) == ("s8", "s8", "minmax")
    assert scale(target.weights["s8"], -1.0, 0.5) == np.float32(1 / 127)


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_ones_own_changes_what_it_says(tmp_path: Path) -> None:
    text = """
        extends = "generic-int8"
        quantize_outputs = false
        [weights]
        s4 = false
        [weights.s8]
        narrow = true
        [weight_axes]
        MatMul = false
        [arithmetic]
        rounding = "floor"
    """
    base, mine = load_target("generic-int8"), load_target(written(tmp_path, text))
    assert mine.name == "mine"
    assert list(mine.weights) == ["s8", "s16"]
    assert mine.weights["s8"].code_min == -127
    assert mine.weight_axes == {op: axis for op, axis in base.weight_axes.items() if op != "MatMul"}
    assert (mine.arithmetic.rounding, mine.arithmetic.tables) == ("floor", base.arithmetic.tables)
    assert not mine.quantize_outputs
    assert mine.fusions == base.fusions


def test_a_file_can_extend_one_beside_it(tmp_path: Path) -> None:
    written(tmp_path, 'extends = "litert"\nname = "base"\nbias = "float"', "base.toml")
    mine = load_target(str(written(tmp_path, 'extends = "base.toml"')))
    assert (mine.name, mine.bias, mine.activation) == ("mine", "float", "s8")


def test_the_default_comes_first(tmp_path: Path) -> None:
    mine = load_target(written(tmp_path, 'extends = "generic-int8"\ndefault_activation = "s16"'))
    assert next(iter(mine.activations)) == mine.activation == "s16"


def test_all_errors_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    text = """
        extends = "generic-int8"
        default_activation = "s32"
        quantised_ops = ["Conv"]
        pass_through = ["Reshap"]
        fusions = [["Conv", "swisch"], []]
        [activations.u8]
        roundin = "floor"
        [weights.s8]
        rounding = "up"
        [needs]
        Conv = ["constant_weights"]
        [calibration]
        method = "kl"
    """
    with pytest.raises(BadInput) as caught:
        load_target(written(tmp_path, text))
    message = caught.value.what
    assert "has 9 errors" in message
    assert "default_activation: Input should be 'u8', 's8'" in message
    assert "quantised_ops: unknown key; did you mean 'quantized_ops'?" in message
    assert "pass_through.0: 'Reshap' is no ONNX op type; did you mean 'Reshape'?" in message
    assert "fusions.0.1: 'swisch' is no ONNX op type and no pattern; did you mean 'swish'?" in message
    assert "fusions.1: List should have at least 1 item" in message
    assert "activations.u8.roundin: unknown key; did you mean 'rounding'?" in message
    assert (
        "weights.s8.rounding: Input should be 'half_even', 'half_up', 'half_away' or 'floor', got 'up'" in message
    )
    assert (
        "needs.Conv.0: 'constant_weights' is nothing a node can fulfil; did you mean 'constant_weight'?" in message
    )
    assert "calibration.method: there is no calibration method 'kl'; choose one of: minmax" in message
    assert "'roundoff explain targets.md'" in caught.value.fix


def test_what_only_the_whole_file_shows_is_named_at_once_too(tmp_path: Path) -> None:
    text = """
        extends = "generic-int8"
        default_weight = "u4"
        shared_scale = ["Reshape"]
        [fixed_ranges]
        Softmax = [1.0, 0.0]
        "Tanh:s12" = [-1.0, 1.0]
        Sinh2 = [0.0, 1.0]
    """
    with pytest.raises(BadInput) as caught:
        load_target(written(tmp_path, text))
    message = caught.value.what
    assert "has 5 errors" in message
    assert "default_weight: there is no [weights.u4]; choose one of: s8, s16, s4" in message
    assert "fixed_ranges.Softmax: the first number must be less than the second" in message
    assert "fixed_ranges.Tanh:s12: 's12' is no dtype of its activations; did you mean 's16'?" in message
    assert "fixed_ranges.Sinh2: 'Sinh2' is no ONNX op type; did you mean 'Sinh'?" in message
    assert "Reshape is both in pass_through and in shared_scale" in message


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="activations: missing"):
        load_target(
            written(tmp_path, 'description = "x"\ndefault_activation = "u8"\ndefault_weight = "s8"\n[weights]')
        )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("generic-int9", "did you mean 'generic-int8'"),
        ("no/such/file.toml", "does not exist"),
        ("file.toml", "does not exist"),
    ],
)
def test_unknown_targets_are_refused(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_target(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends = 3", "extends: should be a name or a path, got 3"),
        ('extends = "mine.toml"', "which extends it in turn"),
        ('extends = "nothing"', "There is no target 'nothing'"),
        ('extends = "nothing.toml"', "extends: .*nothing.toml does not exist"),
        ("= 3", "is not valid TOML"),
    ],
)
def test_files_that_lead_nowhere_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        load_target(written(tmp_path, text))


def test_what_cannot_be_extended_is_told_with_all_other_errors(tmp_path: Path) -> None:
    text = """
        extends = "generic-int9"
        bais = "float"
        weight_axes = false
        default_activation = "u8"
        [activations.u8]
        symmetric = "perhaps"
    """
    with pytest.raises(BadInput) as caught:
        load_target(written(tmp_path, text))
    lines = caught.value.what.splitlines()
    assert lines[0].endswith("has 3 errors:")
    # What is missing, or removed, is not held against it: it may have been in what it extends.
    assert (
        lines[1]
        == "  extends: There is no target 'generic-int9'; did you mean 'generic-int8'? Or give a .toml file"
    )
    assert lines[2].startswith("  activations.u8.symmetric: ")
    assert lines[3].startswith("  bais: unknown key; did you mean 'bias'")


def test_a_name_is_not_taken_for_a_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 'extends = "generic-int8"').rename(tmp_path / "chip.toml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        load_target("chip")
    assert caught.value.what == "There is no target 'chip', but a file chip.toml."
    assert caught.value.fix == "write chip.toml to use it"
    with pytest.raises(BadInput) as caught:
        load_target("xyz")
    assert caught.value.fix.startswith("choose one of: ")
    assert caught.value.fix.endswith("; or give a .toml file")


def test_who_says_nothing_is_told_to_extend(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load_target(written(tmp_path, 'description = "ours"'))
    assert caught.value.fix.startswith('begin with extends = "generic-int8"')


def test_operations_of_other_domains_can_be_named(tmp_path: Path) -> None:
    mine = load_target(written(tmp_path, 'extends = "ascend"\nquantized_ops = ["Conv", "example.com.Mystery"]'))
    assert mine.quantized_ops == {"Conv", "example.com.Mystery"}


def test_every_calibration_method_can_be_named_in_a_target_file(tmp_path: Path) -> None:
    from roundoff.quantize.calibration.methods import all_methods

    for each in all_methods():
        text = f'extends = "ascend"\n[calibration]\nmethod = "{each.name}"'
        assert load_target(written(tmp_path, text)).calibration.method == each.name


def test_the_documentation_names_every_key_target_pattern_and_condition() -> None:
    from roundoff.quantize.targets import schema

    page = (Path(__file__).parents[2] / "docs" / "reference" / "targets.md").read_text(encoding="utf-8")
    tables = (schema.TargetFile, schema.SpecTable, schema.ArithmeticTable)
    keys = {field.alias or name for table in tables for name, field in table.model_fields.items()}
    keys |= {f"calibration.{name}" for name in schema.CalibrationTable.model_fields}
    keys |= {f"float.{name}" for name in schema.FloatTable.model_fields}
    keys -= {"calibration", "float", "activations", "weights"}
    for word in (*keys, "activations.DTYPE", "weights.DTYPE", *target_names(), *PATTERNS, *NEEDS):
        assert f"`{word}`" in page, word


@pytest.mark.parametrize(
    ("called", "name"),
    [("AX650", "axera-ax650"), ("Axera-AX650", "axera-ax650"), ("bayes", "horizon-bayes"),
     ("Ascend", "ascend"), ("LiteRT", "litert")],
)  # fmt: skip
def test_a_chip_is_known_by_what_people_call_it(called: str, name: str) -> None:
    assert load_target(called).name == name


def test_a_word_of_several_names_is_refused() -> None:
    with pytest.raises(BadInput, match="There is no target 'generic'"):
        load_target("generic")
