"""The public names exist, are what they say, and the three lists of them agree."""

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roundoff
from roundoff import demo
from roundoff.cli import COMMANDS


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
    with pytest.raises(roundoff.RoundoffError, match=r"run\.json does not exist"):
        roundoff.load_document("run.json")
