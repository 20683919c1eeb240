"""What is said when nothing can be quantized."""

from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from roundoff.errors import BadInput
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.planning.rules import parse_rule
from roundoff.quantize.targets.files import load_target
from tests.models import conv_net, loaded, value, wrapped


def refusal(model: Any, folder: Path, *rules: str) -> BadInput:
    settings = QuantizeSettings(load_target("generic-int8"), rules=tuple(map(parse_rule, rules)))
    with pytest.raises(BadInput) as caught:
        quantize_model(loaded(model, folder), None, settings)
    return caught.value


def one_node(operation: str, domain: str) -> Any:
    node = helper.make_node(operation, ["x"], ["y"], name="only", domain=domain)
    model = wrapped([node], [value("x", (1, 4))], [value("y", (1, 4))])
    model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def test_rules_that_leave_nothing(tmp_path: Path) -> None:
    error = refusal(conv_net(), tmp_path, "*=float")
    assert "The rules leave nothing of" in str(error)


def test_functions_of_the_model_are_not_looked_into(tmp_path: Path) -> None:
    model = one_node("Twice", "own")
    inside = [helper.make_node("Add", ["a", "a"], ["b"])]
    model.functions.append(
        helper.make_function("own", "Twice", ["a"], ["b"], inside, [helper.make_opsetid("", 17)])
    )
    # The rule asks for nothing that would not be so anyway.
    for rules in ((), ("only=float",)):
        error = refusal(model, tmp_path, *rules)
        assert "'only' is a call of a function that the model defines" in str(error)
        assert "inline_local_functions" in error.fix


def test_operations_of_others_are_named(tmp_path: Path) -> None:
    error = refusal(one_node("Gelu", "com.microsoft"), tmp_path)
    assert "no integer versions of 'com.microsoft.Gelu'" in str(error)


def test_standard_operations_without_integer_versions(tmp_path: Path) -> None:
    node = helper.make_node("Det", ["x"], ["y"], name="only")
    error = refusal(wrapped([node], [value("x", (2, 2))], [value("y", ())]), tmp_path)
    assert "roundoff targets generic-int8" in error.fix
