import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from tests.models import badly_named, conv_net, loaded, residual, save, value, wrapped


def refusal(path: Path) -> BadInput:
    with pytest.raises(BadInput) as caught:
        load_model(path)
    return caught.value


def test_a_model_knows_its_file_and_folder(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)

    assert model.path == tmp_path / "model.onnx"
    assert model.folder == tmp_path
    assert model.weight_bytes == model.path.stat().st_size


def test_nodes_get_names_that_are_unique_and_stable(tmp_path: Path) -> None:
    names = [node.name for node in loaded(badly_named(), tmp_path).proto.graph.node]

    # Relu_0 is taken by another node; the first of two twins keeps the name.
    assert names == ["Relu_0_2", "twin", "Abs_2", "Relu_0", "Sqrt_4"]


def test_nodes_out_of_order_are_sorted_and_names_stay_those_of_the_file(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["b"], ["y"]),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("Relu", ["x"], ["a"]),
    ]
    graph = loaded(wrapped(nodes, [value("x", (2,))], [value("y")]), tmp_path).proto.graph

    assert [node.name for node in graph.node] == ["Relu_2", "Abs_1", "Neg_0"]


def test_sorted_nodes_stay_as_they_are(tmp_path: Path) -> None:
    assert [node.name for node in loaded(residual(), tmp_path).proto.graph.node] == ["stem", "body", "act", "add"]


def test_a_circle_of_nodes_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    path = save(wrapped(nodes, [value("x", (2,))], [value("b")]), tmp_path / "circle.onnx")

    assert "depend on one another in a circle" in refusal(path).what


@pytest.mark.parametrize("cut", [1, 100, 500])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    path = save(conv_net(), tmp_path / "cut.onnx")
    path.write_bytes(path.read_bytes()[:-cut])

    error = refusal(path)

    assert "cut.onnx is not an ONNX model, or is cut short or damaged" in error.what
    assert "copied whole" in error.fix


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n" * 20, b"garbage" * 50, b"{}" * 9])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(content)

    assert "ONNX model" in refusal(path).what


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()

    assert refusal(path).what == f"{path} is empty."


def test_a_git_lfs_pointer_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "pointer.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")

    assert refusal(path).fix == "git lfs pull"


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.onnx").what == f"The model {tmp_path / 'none.onnx'} does not exist."
    assert refusal(tmp_path).what == f"The model {tmp_path} is a folder, not a file."


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")

    assert "is a pipe or a device, not a file" in refusal(tmp_path / "pipe.onnx").what


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(conv_net(), tmp_path / "secret.onnx")

    def forbidden(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", forbidden)

    assert "may not be read" in refusal(path).what


def test_a_model_without_graph_or_outputs_is_refused(tmp_path: Path) -> None:
    model = conv_net()
    del model.graph.output[:]
    assert "it has no outputs" in refusal(save(model, tmp_path / "a.onnx")).what
    model.ClearField("graph")
    assert "it has no graph" in refusal(save(model, tmp_path / "b.onnx")).what


def test_a_file_beyond_the_format_s_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)

    error = refusal(path)

    assert "one ONNX file can hold at most 2147483647" in error.what
    assert "save_as_external_data=True" in error.fix


def test_names_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path / "gbk.onnx")
    path.write_bytes(path.read_bytes().replace(b"pooled", b"\xb0\xa1\xb0\xa1\xb0\xa1"))

    error = refusal(path)

    assert "is not UTF-8 text" in error.what
    assert "ASCII" in error.fix


def test_weights_of_no_known_type_or_size_are_refused(tmp_path: Path) -> None:
    def broken(change: Callable[[Any], None]) -> str:
        proto = conv_net()
        change(proto.graph.initializer[0])
        return refusal(save(proto, tmp_path / "broken.onnx")).what

    name = repr(conv_net().graph.initializer[0].name)

    def cut(tensor: Any) -> None:
        tensor.CopyFrom(numpy_helper.from_array(np.zeros((2, 3), np.float32), tensor.name))
        tensor.raw_data = tensor.raw_data[:-1]

    assert broken(lambda tensor: setattr(tensor, "data_type", 999)) == f"Tensor {name} is of the unknown type 999."
    assert broken(lambda tensor: tensor.dims.__setitem__(0, -1)).startswith(f"Tensor {name} has the shape [-1")
    assert broken(cut) == f"Tensor {name} holds 23 bytes, its shape needs 24."


def test_nodes_without_the_inputs_of_their_operator_are_refused(tmp_path: Path) -> None:
    for inputs in (["x"], ["x", ""], []):
        node = helper.make_node("Conv", inputs, ["y"], name="c")
        path = save(wrapped([node], [value("x", (1, 1, 3, 3))], [value("y")]), tmp_path / "short.onnx")
        assert f"node 'c' (Conv) has {len(inputs)} input" in refusal(path).what
    # Operators of others are theirs to know.
    loaded(wrapped([helper.make_node("Odd", [], ["y"], domain="x")], [value("x", (2,))], [value("y")]), tmp_path)


@pytest.mark.parametrize(("key", "text"), [("location", b"w\xff"), ("offset", b"9" * 5000)])
def test_odd_external_data_is_refused(tmp_path: Path, key: str, text: bytes) -> None:
    proto = conv_net()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    (tmp_path / "w.bin").write_bytes(bytes(10_000))
    for entry, said in {"location": "w.bin", key: "%" * len(text)}.items():
        tensor.external_data.add(key=entry, value=said)
    path = tmp_path / "odd.onnx"
    path.write_bytes(proto.SerializeToString().replace(b"%" * len(text), text))
    assert tensor.name in refusal(path).what


def test_two_outputs_of_one_name_are_refused(tmp_path: Path) -> None:
    model = conv_net()
    model.graph.output.append(model.graph.output[0])

    error = refusal(save(model, tmp_path / "twice.onnx"))

    assert f"has two outputs of the name {model.graph.output[0].name!r}" in error.what
    assert "outputs" in error.fix
