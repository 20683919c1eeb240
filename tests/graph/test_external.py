import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.run.session import open_session
from tests.models import conv_net, random_feed, save, value, wrapped

WEIGHTS = "weights.bin"


def save_external(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(conv_net(), path, save_as_external_data=True, location=WEIGHTS, size_threshold=0)
    return path


def with_entries(folder: Path, **entries: str) -> Path:
    """The model with some entries of the first weight's external data replaced."""
    path = save_external(folder)
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[0]
    known = {entry.key: entry.value for entry in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, text in known.items():
        tensor.external_data.add(key=key, value=text)
    return save(model, path)


def refusal(path: Path) -> BadInput:
    with pytest.raises(BadInput) as caught:
        load_model(path)
    return caught.value


def test_values_stay_outside_and_the_model_runs_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = random_feed({"image": (1, 3, 8, 8)})
    expected = open_session(load_model(save(conv_net(), tmp_path / "inline.onnx"))).run(feed)
    save_external(tmp_path)
    monkeypatch.chdir(tmp_path.parent)

    model = load_model(Path(tmp_path.name) / "model.onnx")

    assert not any(tensor.raw_data for tensor in model.proto.graph.initializer)
    assert model.weight_bytes > (tmp_path / WEIGHTS).stat().st_size - 4096
    np.testing.assert_array_equal(open_session(model).run(feed)[0], expected[0])


@pytest.mark.parametrize(
    "location", ["../weights.bin", "sub/../../weights.bin", "{parent}/weights.bin", "..\\weights.bin"]
)
def test_paths_that_leave_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = with_entries(folder, location=location.format(parent=tmp_path))
    (tmp_path / WEIGHTS).write_bytes(bytes(10_000))

    error = refusal(path)

    assert "Tensor 'w1' keeps its values in" in error.what
    assert "outside of the model's folder" in error.what
    assert "next to the model" in error.fix


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = save_external(folder)
    (folder / WEIGHTS).rename(tmp_path / WEIGHTS)
    (folder / WEIGHTS).symlink_to(tmp_path / WEIGHTS)

    assert "outside of the model's folder" in refusal(path).what


def test_a_link_within_the_folder_is_fine(tmp_path: Path) -> None:
    path = save_external(tmp_path)
    (tmp_path / WEIGHTS).rename(tmp_path / "real.bin")
    (tmp_path / WEIGHTS).symlink_to("real.bin")

    model = load_model(path)
    assert model.weight_bytes >= (tmp_path / "real.bin").stat().st_size


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = save_external(tmp_path)
    (tmp_path / WEIGHTS).unlink()

    error = refusal(path)

    assert error.what == f"Tensor 'w1' keeps its values in {tmp_path / WEIGHTS}, which does not exist."
    assert "copy 'weights.bin'" in error.fix


def test_a_folder_or_a_pipe_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    path = save_external(tmp_path)
    for put in (Path.mkdir, os.mkfifo):
        (tmp_path / WEIGHTS).rename(tmp_path / f"before {put.__name__}")
        put(tmp_path / WEIGHTS)

        assert "which is a folder, a pipe or a device, not a file." in refusal(path).what


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    path = save_external(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(bytes(100))

    error = refusal(path)

    assert f"Tensor 'w1' ends at byte 432 of {tmp_path / WEIGHTS}, which has only 100 bytes." == error.what
    assert "cut short" in error.fix


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "-4"}, "the external data offset '-4', which is not a number of bytes"),
        ({"length": "many"}, "the external data length 'many'"),
        ({"offset": str(2**62)}, "which has only"),
        ({"length": "4"}, "needs 432 bytes, but only 4 bytes"),
        ({"location": ""}, "has external data, but no file is named"),
    ],
)
def test_entries_that_make_no_sense_are_refused(tmp_path: Path, entries: dict[str, str], message: str) -> None:
    assert message in refusal(with_entries(tmp_path, **entries)).what


def test_constants_inside_subgraphs_are_checked_too(tmp_path: Path) -> None:
    constant = TensorProto(
        name="secret", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL
    )
    constant.external_data.add(key="location", value="/etc/hostname")
    node = helper.make_node("Constant", [], ["k"], value=constant)
    branch = helper.make_graph([node], "branch", [], [value("k", (1,))])
    chosen = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    model = wrapped([chosen], [value("x", (), TensorProto.BOOL)], [value("y")])

    assert "'secret'" in refusal(save(model, tmp_path / "model.onnx")).what


def model_of_size(folder: Path, rows: int) -> Any:
    """A model that picks rows from an int8 table of `rows` x 1024 zeros in a sparse file."""
    columns = 1024
    with (folder / WEIGHTS).open("wb") as file:
        file.truncate(rows * columns)
    table = TensorProto(
        name="table", data_type=TensorProto.INT8, dims=[rows, columns], data_location=TensorProto.EXTERNAL
    )
    table.external_data.add(key="location", value=WEIGHTS)
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["picked"]),
        helper.make_node("Cast", ["picked"], ["y"], to=TensorProto.FLOAT),
    ]
    return wrapped(nodes, [value("rows", ("N",), TensorProto.INT64)], [value("y")], [table])


def test_models_above_two_gigabytes_run(tmp_path: Path) -> None:
    model = load_model(save(model_of_size(tmp_path, rows=3 * 2**20), tmp_path / "model.onnx"))

    assert model.weight_bytes > 3 * 2**30
    picked = open_session(model).run({"rows": np.array([0, 3 * 2**20 - 1])})[0]
    assert picked.shape == (2, 1024)
    assert not picked.any()
