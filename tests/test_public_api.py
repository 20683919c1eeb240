"""The public names exist, are what they say, and the three lists of them agree."""

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roundoff
from roundoff import demo
from roundoff.cli import COMMANDS
from roundoff.messages.message import Translatable


@pytest.mark.parametrize("name", roundoff.__all__)
def test_every_public_name_can_be_used(name: str) -> None:
    value = getattr(roundoff, name)
    assert (inspect.getdoc(value) or "").strip()


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(roundoff))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.asname or alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(roundoff.__all__) == set(roundoff._HOMES)


def test_no_public_name_is_hidden_by_a_package() -> None:
    for name in roundoff.__all__:
        assert callable(getattr(roundoff, name)), name


def test_other_names_are_missing_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compair'"):
        roundoff.compair  # noqa: B018


@pytest.mark.parametrize(
    "name", [name.replace("-", "_") for name in COMMANDS if name.replace("-", "_") in roundoff.__all__]
)
@pytest.mark.parametrize("given", [((), {"nonsense": 1}), ((object(), object(), object()), {"another": {}})])
def test_a_wrong_call_of_a_command_is_an_error_with_a_way_on(name: str, given: tuple[Any, Any]) -> None:
    with pytest.raises(roundoff.BadInput) as refused:
        getattr(roundoff, name)(*given[0], **given[1])
    assert refused.value.fix


def test_paths_may_be_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = roundoff.load_model(str(demo.model_path()))
    roundoff.save_model(model, "copy.onnx")
    np.save("images.npy", demo.load_split("test")[0][:2])
    for source in ("images.npy", {"image": "images.npy"}):
        assert len(roundoff.open_samples(source, roundoff.inputs(model))) == 2
    assert [each.name for each in roundoff.open_source("images.npy").tensors] == ["images"]
    Path("names.json").write_text('{"a": "b"}', encoding="utf-8")
    assert roundoff.read_aliases("names.json") == {"a": "b"}
    with pytest.raises(roundoff.BadInput, match=r"net\.prototxt"):
        roundoff.import_caffe("net.prototxt", "net.caffemodel")
    with pytest.raises(roundoff.RoundoffError, match=r"run\.json does not exist"):
        roundoff.load_document("run.json")


PARTS = [
    name
    for name, home in roundoff._HOMES.items()
    if inspect.isfunction(getattr(roundoff, name)) and "api." not in home
]


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("wrong", [object(), {}, b"", [object()], ...], ids=lambda value: type(value).__name__)
def test_a_part_given_what_it_does_not_take_says_what_it_takes(name: str, wrong: Any) -> None:
    part = getattr(roundoff, name)
    needed = [each for each in inspect.signature(part).parameters.values() if each.default is each.empty]
    if not needed:
        return
    with pytest.raises(roundoff.BadInput) as refused:
        part(*[wrong] * len(needed))
    assert re.match(rf"roundoff\.{name}\(\): ({'|'.join(each.name for each in needed)}) is ", refused.value.what)
    assert refused.value.fix.startswith("give ")


def test_what_a_part_is_to_be_given_names_the_part_that_gives_it() -> None:
    with pytest.raises(roundoff.BadInput) as refused:
        roundoff.quantize_model("model.onnx", None, None)  # type: ignore[arg-type]
    assert refused.value.what == "roundoff.quantize_model(): model is of type str."
    assert refused.value.fix == "give Model (of roundoff.load_model())"
    with pytest.raises(roundoff.BadInput) as refused:
        roundoff.open_samples("images.npy", [3])  # type: ignore[list-item]
    assert refused.value.fix == "give Sequence of InputSpec (of roundoff.inputs())"


def test_parts_are_found_by_other_processes_take_numbers_out_of_arrays_and_speak_chinese() -> None:
    for name in PARTS:
        part = getattr(roundoff, name)
        assert getattr(sys.modules[part.__module__], part.__qualname__) is part  # as `pickle` looks for it
    same = np.arange(6.0)
    sums = roundoff.measure_pair(same, same, block=np.int64(4))  # type: ignore[arg-type]
    assert roundoff.score(sums).values["cosine"] == pytest.approx(1)
    with pytest.raises(roundoff.BadInput) as refused:
        roundoff.load_model(np.ones(3))  # type: ignore[arg-type]
    assert isinstance(refused.value.fix, Translatable)
    assert refused.value.fix.within("zh") == "请给出 str 或 pathlib.Path"


def test_arrays_that_cannot_be_measured_together_are_bad_input() -> None:
    for pair in (([1.0, 2.0], [1.0]), (["a"], ["b"]), ([[1.0], [1.0, 2.0]], [1.0, 2.0, 3.0])):
        with pytest.raises(roundoff.BadInput) as refused:
            roundoff.measure_pair(*pair)
        assert refused.value.fix


@pytest.mark.parametrize(
    ("call", "said", "chinese"),
    [
        (lambda: roundoff.quantize("x.onnx"), "add target= NAME", "请加 target= NAME"),
        (lambda: roundoff.compare(3, 4), "or a model with data=", "或模型加 data="),
    ],
)
def test_errors_name_keywords_in_every_language(call: Any, said: str, chinese: str) -> None:
    with pytest.raises(roundoff.BadInput) as refused:
        call()
    fix = pickled(refused.value).fix
    assert said in fix
    assert chinese in fix.within("zh")


def pickled(error: Any) -> Any:
    """The error as it comes from another process."""
    made, given, state = error.__reduce__()
    found = made(*given)
    found.__dict__.update(state)
    return found
