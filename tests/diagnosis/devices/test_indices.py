"""Outputs that are indices are judged by how many are equal, on a device and in a comparison."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import roundoff
from roundoff import demo

SAMPLES = 8


@pytest.fixture
def network(tmp_path: Path) -> tuple[Path, Path]:
    """The demo's network with ArgMax as its only output, and samples."""
    model = onnx.load(demo.model_path())
    model.graph.node.append(helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0, name="argmax"))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, [1]))
    onnx.save(model, tmp_path / "labels.onnx")
    images = np.load(demo.model_path().parent / "samples.npy")[:SAMPLES]
    np.save(tmp_path / "x.npy", images)
    return tmp_path / "labels.onnx", tmp_path / "x.npy"


def dumped(network: tuple[Path, Path], folder: Path, *, wrong: int, dtype: type) -> Path:
    """What a board writes whose label is another one in some samples."""
    source = roundoff.LiveSource(
        roundoff.load_model(network[0]),
        roundoff.open_samples(network[1], roundoff.inputs(roundoff.load_model(network[0]))),
    )
    for place, sample in enumerate(source.samples):
        (folder / f"sample{place}").mkdir(parents=True)
        for info in source.tensors:
            values = source.read(info.name, sample)
            if info.name == "label":
                values = (np.asarray(values) + (1 if place < wrong else 0)).astype(dtype)
            np.save(folder / f"sample{place}" / f"{info.name.replace('/', '_')}.npy", values)
    return folder


@pytest.mark.parametrize(
    ("wrong", "dtype"), [(0, np.int64), (0, np.float32), (3, np.int64), (3, np.int32), (SAMPLES, np.float32)]
)
def test_a_network_that_gives_labels(wrong: int, dtype: type, network: tuple[Path, Path], tmp_path: Path) -> None:
    dump = dumped(network, tmp_path / "dump", wrong=wrong, dtype=dtype)
    model, data = network
    found = roundoff.diagnose(model, data=data, dumps=dump)
    compared = roundoff.compare(model, dump, data=data)
    loose = roundoff.compare(model, dump, data=data, threshold="cosine=0.5")
    if wrong:
        assert (found.result.kind, found.exit_code) == ("culprits", 1)
        assert found.result.outputs is not None
        assert (found.result.outputs.judged, found.result.outputs.indices) == (("label",), ("label",))
        [finding] = found.result.findings
        assert (finding.cause, finding.nodes, finding.tensors) == ("kernel-fault", ("argmax",), ("label",))
        assert (finding.measures[0].before, finding.measures[0].after) == (1 - wrong / SAMPLES, 1.0)
        assert (compared.result.state, loose.result.state) == ("fail", "fail")
    else:
        assert (found.result.kind, found.exit_code) == ("healthy", 0)
        assert (compared.result.state, compared.exit_code, loose.exit_code) == ("pass", 0, 0)


def test_one_wrong_label_of_eight_is_no_good_verdict(network: tuple[Path, Path], tmp_path: Path) -> None:
    dump = dumped(network, tmp_path / "dump", wrong=1, dtype=np.int64)
    model, data = network
    found, compared = roundoff.diagnose(model, data=data, dumps=dump), roundoff.compare(model, dump, data=data)
    assert (found.result.kind, found.exit_code) == ("not_enough_evidence", 1)
    assert (compared.result.state, compared.exit_code) == ("no_evidence", 1)
    for judgement in (found.result.judgement, compared.result.judgement):
        assert judgement is not None
        assert [(each.kind, each.count, each.of) for each in judgement.doubts] == [("indices", 1, SAMPLES)]


def test_labels_alone_can_be_right_and_accuse_nobody(network: tuple[Path, Path], tmp_path: Path) -> None:
    model, data = network
    for wrong, kind in ((0, "healthy"), (SAMPLES, "not_enough_evidence")):
        folder = dumped(network, tmp_path / f"dump{wrong}", wrong=wrong, dtype=np.int64)
        for path in folder.rglob("*.npy"):
            if path.stem != "label":
                path.unlink()
        found = roundoff.diagnose(model, data=data, dumps=folder)
        assert (found.result.kind, found.exit_code, found.result.findings) == (kind, int(wrong > 0), ())
        right = f"{SAMPLES} of {SAMPLES} indices are those of the float model; nothing else was dumped"
        unknown = (
            f"{SAMPLES} of {SAMPLES} indices of 'label' are not those of the float model, and no tensor of the"
            " device says why"
        )
        assert str(found.result.verdict) == (unknown if wrong else right)


def test_a_label_that_rounding_makes_as_good_is_no_wrong_kernel(
    network: tuple[Path, Path], tmp_path: Path
) -> None:
    """Where the two largest logits are a step of 8 bits apart, either may be taken."""
    model, data = network
    for apart in (0.002, 0.2):
        folder = dumped(network, tmp_path / f"dump{apart}", wrong=0, dtype=np.int64)
        for each in sorted(folder.iterdir())[:4]:
            logits = np.load(each / "logits.npy")
            first, second = np.argsort(-logits[0])[:2]
            logits[0, second] = logits[0, first] - apart * np.ptp(logits)
            np.save(each / "logits.npy", logits)
            np.save(each / "label.npy", np.array([second]))
        found = roundoff.diagnose(model, data=data, dumps=folder)
        accused = [each for finding in found.result.findings for each in finding.nodes if each == "argmax"]
        assert accused == (["argmax"] if apart > 0.1 else [])


def test_a_dump_of_a_quantized_file_is_read_behind_its_pairs(network: tuple[Path, Path], tmp_path: Path) -> None:
    model, data = network
    roundoff.quantize(model, data=data, target="generic-int8").save(tmp_path / "quantized")
    [file] = (tmp_path / "quantized").glob("*fake_quant*.onnx")
    roundoff.dump(file, tmp_path / "dump", data=data)
    found = roundoff.diagnose(model, data=data, dumps=tmp_path / "dump")
    assert (found.result.kind, found.result.findings) == ("healthy", ())
    assert "all" in str(found.result.verdict)
