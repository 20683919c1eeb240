"""The demo's model and data: what the package promises about the files it ships."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from roundoff import demo
from roundoff.core.tensors import Array
from roundoff.errors import BadInput

SPLITS: tuple[demo.Split, ...] = ("train", "calibration", "test")
FOLDER = demo.model_path().parent


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(demo.model_path())


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(demo.model_path(), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def stored() -> dict[str, Array]:
    with np.load(FOLDER / "digits.npz", allow_pickle=False) as archive:
        return dict(archive)


def test_the_model_reads_more_than_97_percent_of_the_test_images(session: ort.InferenceSession) -> None:
    images, labels = demo.load_split("test")
    logits = session.run(["logits"], {"image": images})[0]
    assert (logits.argmax(axis=1) == labels).mean() > 0.97


@pytest.mark.parametrize("batch", [1, 5])
def test_the_batch_axis_is_dynamic(session: ort.InferenceSession, batch: int) -> None:
    images, _ = demo.load_split("calibration")
    assert session.get_inputs()[0].shape == ["N", 1, 8, 8]
    assert session.run(["logits"], {"image": images[:batch]})[0].shape == (batch, 10)


def test_the_model_is_valid_and_states_its_versions(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]


def test_the_model_has_the_structure_of_real_exports(model: onnx.ModelProto) -> None:
    operations = Counter(node.op_type for node in model.graph.node)
    assert operations["BatchNormalization"] == operations["Conv"] == 9
    assert operations["Add"] == 2
    assert operations["Clip"] == 4
    groups = [a.i for node in model.graph.node for a in node.attribute if a.name == "group"]
    assert sum(group > 1 for group in groups) == 4


def test_every_node_and_its_output_share_a_readable_name(model: onnx.ModelProto) -> None:
    names = [node.name for node in model.graph.node]
    assert names == [node.output[0] for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert {"stem/conv", "block2/depthwise", "block4/add", "logits"} <= set(names)


def test_the_splits_are_disjoint_and_cover_everything(stored: dict[str, Array]) -> None:
    members = np.concatenate([stored[name] for name in SPLITS])
    assert sorted(members.tolist()) == list(range(len(stored["labels"])))
    assert len(stored["images"]) == len(stored["labels"]) == 1797


@pytest.mark.parametrize("name", SPLITS)
def test_every_split_holds_every_digit_in_proportion(name: demo.Split) -> None:
    _, labels = demo.load_split(name)
    shares = np.bincount(labels, minlength=10) / len(labels)
    assert np.abs(shares - 0.1).max() < 0.02


@pytest.mark.parametrize("name", SPLITS)
def test_images_come_scaled_and_shaped_for_the_model(name: demo.Split) -> None:
    images, labels = demo.load_split(name)
    assert images.dtype == np.float32
    assert images.shape == (len(labels), 1, 8, 8)
    assert labels.dtype == np.int64
    assert images.min() == 0.0
    assert images.max() == 1.0


def test_an_unknown_split_names_the_nearest() -> None:
    with pytest.raises(BadInput, match="no part 'tset'") as caught:
        demo.load_split("tset")  # type: ignore[arg-type]
    assert caught.value.fix == "did you mean 'test'?"


def test_the_files_are_small() -> None:
    sizes = {path.relative_to(FOLDER).as_posix(): path.stat().st_size for path in FOLDER.rglob("*.*")}
    assert sizes["digits.onnx"] < 300_000
    assert sizes["digits.npz"] < 300_000
    assert sum(size for name, size in sizes.items() if name.startswith("board_dump/")) < 500_000
