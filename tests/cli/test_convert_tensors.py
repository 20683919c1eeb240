"""roundoff convert on files of tensors."""

import json
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.tensors import open_source
from roundoff.tensors.ascend_dump.layouts import LaidOutValues, to_device
from tests.ascend_dumps import TIME, item, write_dump

TRUTH = np.arange(1 * 20 * 4 * 5, dtype=np.float32).reshape(1, 20, 4, 5)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Dumps of one operator in blocks of channels, and of one as it is."""
    folder = tmp_path / "dump"
    folder.mkdir()
    stored = to_device(LaidOutValues(TRUTH, "NCHW"), "NC1HWC0", block=16)
    assert stored is not None
    blocked = item(np.ascontiguousarray(stored), format="NC1HWC0", original=TRUTH.shape)
    write_dump(folder / f"Conv2D.conv.1.2.{TIME}", [blocked], op_name="conv")
    write_dump(folder / f"MatMul.fc.2.2.{TIME + 1}", [item(np.array([[1, 2]], np.float32))], op_name="fc")
    return folder


def run(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.mark.parametrize("form", ["npy", "npz", "bin", "ascend-npy"])
def test_tensors_come_out_as_before_the_compiler(form: str, dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("convert", dump, "-o", out, "--to", form) == 0
    found = open_source(out)
    assert len(found.tensors) == 2
    arrays = [found.read(info.name, found.samples[0]) for info in found.tensors]
    np.testing.assert_array_equal(next(array for array in arrays if array.ndim == 4), TRUTH)


def test_another_memory_format(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    single = dump / f"Conv2D.conv.1.2.{TIME}"
    assert run("convert", single, "-o", out, "--format", "NHWC", "--json") == 0
    (name,) = json.loads(capsys.readouterr().out)["files"]
    np.testing.assert_array_equal(np.load(out / name), TRUTH.transpose(0, 2, 3, 1))
    # What cannot be converted is named, and the rest is there.
    (dump / f"MatMul.fc.2.2.{TIME + 1}").write_bytes(b"\1")
    assert run("convert", dump, "-o", out, "--format", "NHWC", "--force") == 1
    told = capsys.readouterr()
    assert "1 tensor in NHWC" in told.out
    assert "fc" in told.err
    assert (out / name).exists()


def test_what_cannot_be_read_is_named_and_the_rest_converted(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = dump / f"MatMul.fc.2.2.{TIME + 1}"
    file.write_bytes(file.read_bytes()[:-1])
    assert run("convert", dump, "-o", tmp_path / "out", "--json") == 1
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["tensors"] == 1
    assert list(found["failed"]) == ["fc.0"]
    assert "left out: tensor 'fc.0', because" in told.err


def test_nothing_is_replaced_unasked(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run("convert", dump, "-o", out) == 0
    before = sorted(out.iterdir())
    assert run("convert", dump, "-o", out, "--to", "bin") == 2
    assert sorted(out.iterdir()) == before
    assert "--force" in capsys.readouterr().err
    assert run("convert", dump, "-o", out, "--to", "bin", "--force") == 0
    assert not list(out.glob("*.npy"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("dump", "-o", "x", "--shape", "1,2"), "--shape has no effect without --format"),
        (("dump", "-o", "x", "--format", "NCHW", "--to", "bin"), "--format writes .npy files"),
        (("dump", "-o", "x", "--format", "NOPE"), "The format 'NOPE' is not known"),
        (("arrays", "-o", "x", "--format", "NCHW"), "holds no device dumps"),
        (("dump", "w.caffemodel", "-o", "x"), "is no Caffe net, so that w.caffemodel means nothing"),
        (("net.prototxt", "-o", "x.onnx", "--to", "npy"), "--to is for files of tensors"),
        (("missing", "-o", "x"), "does not exist"),
    ],
)
def test_refusals(
    words: tuple[str, ...],
    told: str,
    dump: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arrays = dump.parent / "arrays"
    arrays.mkdir()
    np.save(arrays / "a.npy", np.zeros(3))
    monkeypatch.chdir(dump.parent)
    assert run("convert", *words) == 2
    assert told in capsys.readouterr().err
    assert not (dump.parent / "x").exists()
