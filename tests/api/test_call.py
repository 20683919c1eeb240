"""A call of a public function as the command that does the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.api.call import Call, DataOptions, public
from roundoff.cli import parse_words
from roundoff.errors import BadInput


@pytest.mark.parametrize(
    ("typed", "numbers"),
    [
        ({"scale": "1/255"}, {"scale": 1 / 255}),
        ({"mean": "0.5,1/4,2", "std": "3"}, {"mean": (0.5, 0.25, 2.0), "std": 3.0}),
        ({"mean": ["1/2", 4]}, {"mean": (0.5, 4.0)}),
        ({"image_size": "4x6", "image_resize": "crop"}, {"image_size": (4, 6), "image_resize": "crop"}),
    ],
)
def test_numbers_may_be_written_as_they_are_typed(typed: dict[str, Any], numbers: dict[str, Any]) -> None:
    ours, theirs = (Call("layers", each, DataOptions).sample_options(limit=None) for each in (typed, numbers))
    assert ours == theirs
    assert ours.image is not None


def test_what_is_no_number_is_refused_however_it_is_written() -> None:
    for value in ("1/0", "half", "0.5,x", ["1/2", "y"]):
        with pytest.raises(BadInput, match="which is no number"):
            Call("layers", {"mean": value}, DataOptions).sample_options(limit=None)


GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("layers", {"model": Path("a.onnx"), "data": "x", "target": "t", "method": "local", "samples": 3}),
    ("layers", {"quantized": "q", "data": {"left": "l.npy", "right": Path("r.npy")}}),
    ("quantize", {"model": "m", "data": "d", "target": "t", "mean": (-1, 0.5, 2.0), "set": {"op:Softmax": "u16"}}),
    ("quantize", {"model": "m", "data": "d", "target": "t", "raw_shape": (1, 3, 8), "set": ["a=float", "b=s16"]}),
    ("compare", {"reference": "a", "candidate": "b", "model": "m.onnx", "no_value_matching": True}),
    ("compare", {"reference": "a", "candidate": "b", "no_value_matching": False, "aliases": "names.csv"}),
    ("diagnose", {"model": "m", "data": "d", "target": "t", "labels": "l.csv", "time": 2.5}),
    ("sensitivity", {"model": "m", "data": "d", "target": "t", "nodes": ["a, b", "c"], "kind": "weight"}),
    ("channels", {"model": "m", "data": "d", "target": "t", "nodes": ["a", "b"]}),
    ("partial", {"model": "m", "data": "d", "target": "t", "goal": "99%", "top": 5}),
    ("tune", {"model": "m", "data": "d", "target": "t", "output": "o", "max_drop": "1%", "max_trials": 9}),
]


def made(name: str, given: dict[str, Any]) -> tuple[str, ...]:
    @public
    def function(**given: Any) -> tuple[str, ...]:
        return Call(name, {}, DataOptions).document(()).command

    return function(**given, progress=None, tell=print)


@pytest.mark.parametrize(("name", "given"), GIVEN)
def test_the_command_has_the_options_that_were_given(name: str, given: dict[str, Any]) -> None:
    program, *words = made(name, given)
    assert program == "roundoff"
    parsed = vars(parse_words([*words, *(["-o", "there"] if name == "quantize" else [])]))
    for option, value in given.items():
        there = parsed[option]
        if isinstance(value, dict):
            assert [str(each) for each in there] == [f"{key}={each}" for key, each in value.items()]
        elif isinstance(value, list):
            assert [str(each) for each in there] == value
        else:
            one = there[0] if isinstance(there, list) and not isinstance(value, tuple) else there
            assert one == value or str(one) == str(value) or tuple(one) == value


@pytest.mark.parametrize(
    "given",
    [
        {"model": object()},
        {"data": [np.zeros(3)]},
        {"model": ("a.prototxt", "a.caffemodel")},
        {"set": {"a": object}},
    ],
)
def test_what_cannot_be_typed_is_told_as_a_call(given: dict[str, Any]) -> None:
    assert made("layers", {**given, "target": "t"}) == ("roundoff.layers", "target=t")


def test_names_are_not_taken_for_the_model_that_was_left_out() -> None:
    assert made("channels", {"quantized": "q", "nodes": "a"}) == ("roundoff.channels", "quantized=q", "nodes=a")
