"""roundoff check-io: files in, verdict, page, document and exit code out."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.core.tensors import Array
from tests.models import conv_net, save
from tests.studies.check_io.pictures import fed, natural


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Three samples: pictures, what training feeds, and what a board feeds as raw bytes."""
    rng = np.random.default_rng(0)
    for name in ("photos", "train", "board", "nearest"):
        (tmp_path / name).mkdir()
    for number in range(3):
        picture = natural(rng, 60, 80)
        small = cv2.resize(picture, (32, 24))
        Image.fromarray(picture).save(tmp_path / f"photos/s{number}.png")
        np.save(tmp_path / f"train/s{number}.npy", fed(small))
        np.ascontiguousarray(small[..., ::-1]).tofile(tmp_path / f"board/s{number}.bin")
        nearest = cv2.resize(picture, (32, 24), interpolation=cv2.INTER_NEAREST)
        fed(nearest).tofile(tmp_path / f"nearest/s{number}.bin")
    return tmp_path


def run(*words: object) -> int:
    return main(["check-io", *map(str, words)])


def flat(text: str) -> str:
    return " ".join(text.split())


def test_what_agrees_passes(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--preprocessed", folders / "train", folders / "train") == 0
    out = capsys.readouterr().out
    assert out.startswith("SAME: training and the deployed side agree at 1 stage")
    assert "max |a - b| 0, allowed 0.0001, 3 samples" in out


def test_what_differs_is_named_with_its_settings(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--preprocessed", folders / "train", folders / "board") == 1
    out = flat(capsys.readouterr().out)
    assert out.startswith(
        "DIFFERENT: training and the deployed side part at the stage 'preprocessed' (3 differences"
    )
    assert "explained, checked on all values of 3 samples" in out
    assert "channels are in the opposite order (RGB against BGR)" in out
    assert "Pulsar2: src_layout: NHWC, tensor_layout: NCHW" in out
    assert "Pulsar2: mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]" in out


def test_the_original_names_the_filter(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = ("--preprocessed", folders / "train", folders / "nearest")
    assert run(*pair) == 1
    out = flat(capsys.readouterr().out)
    assert "no transformation explains the difference" in out
    assert "excluded order of channels" in out
    assert "give --original" in out
    assert run("--original", folders / "photos", *pair) == 1
    out = flat(capsys.readouterr().out)
    assert "training resizes bilinear (OpenCV), the deployed side nearest (OpenCV)" in out


def test_one_side_is_followed_from_the_original(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--original", folders / "photos", "--preprocessed", "-", folders / "board", "--shape", "1x24x32x3")
    assert run(*words) == 1
    out = flat(capsys.readouterr().out)
    assert out.startswith("NOT COMPARED: no stage has both sides")
    assert "from the original: stretched; resized bilinear (OpenCV), in bytes; channels reversed" in out


def test_the_document(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = folders / "run"
    assert run("--preprocessed", folders / "train", folders / "board", "--json", "-o", target) == 1
    document = json.loads(capsys.readouterr().out)
    (stage,) = document["io_check"]["stages"]
    assert (stage["stage"], stage["passed"], stage["samples"]) == ("preprocessed", False, 3)
    assert [change["kind"] for change in stage["explanation"]["changes"]] == [
        "reshaped",
        "channel-order",
        "normalization",
    ]
    assert [file["role"] for file in document["inputs"]] == ["preprocessed, training", "preprocessed, deployed"]
    loaded = load_document(target)
    assert loaded.io_check is not None
    assert not loaded.io_check.passed
    assert run("--preprocessed", folders / "train", folders / "board", "-o", target) == 2


def test_single_files_and_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.arange(24, dtype=np.float32).reshape(1, 24) / 7
    np.save(tmp_path / "a.npy", values)
    values.astype(np.float32).tofile(tmp_path / "anything.dump")
    assert run("--result", tmp_path / "a.npy", tmp_path / "anything.dump", "--dtype", "float32") == 0
    for name in ("anything.dump", "result.json", "result.txt"):
        values.tofile(tmp_path / name)
        assert run("--result", tmp_path / "a.npy", tmp_path / name) == 2
        message = flat(capsys.readouterr().err)
        assert f"{name} is none of .npy, .npz, .bin, .raw or a picture" in message
        assert "raw bytes of any ending are read with --dtype float32" in message
    np.savez(tmp_path / "a.npz", boxes=values, scores=values * 2)
    np.savez(tmp_path / "b.npz", boxes=values, scores=values * 2 + 1)
    assert run("--result", tmp_path / "a.npz", tmp_path / "b.npz") == 1
    assert "worst sample scores" in flat(capsys.readouterr().out)


def test_tolerances_and_known_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = natural(np.random.default_rng(1))
    mean, std = np.array((90.0, 100.0, 110.0)), np.array((50.0, 55.0, 60.0))

    def saved(name: str, values: Array) -> Path:
        np.save(tmp_path / name, np.ascontiguousarray(values.transpose(2, 0, 1)[None]).astype(np.float32))
        return tmp_path / name

    right, wrong = saved("a.npy", (picture - mean) / std), saved("b.npy", picture / std - mean / 255)
    assert run("--preprocessed", right, wrong, "--mean", "90,100,110", "--std", "50,55,60") == 1
    assert "(training)" in flat(capsys.readouterr().out)
    assert run("--preprocessed", right, wrong, "--input-tolerance", "10") == 0


def test_raw_files_without_a_shape_are_rows_of_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(0).normal(size=300).astype(np.float32)
    values.tofile(tmp_path / "a.bin")
    (values * 3 + 1).astype(np.float32).tofile(tmp_path / "b.bin")
    assert run("--preprocessed", tmp_path / "a.bin", tmp_path / "b.bin") == 1
    out = flat(capsys.readouterr().out)
    assert "--shape lets them be read as pictures" in out
    assert "training is the deployed side times a gain plus an offset" in out


def test_the_model_says_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(conv_net(), tmp_path / "m.onnx")
    picture = natural(np.random.default_rng(2), 8, 8)
    fed(picture).tofile(tmp_path / "a.bin")
    fed(picture[:, ::-1]).tofile(tmp_path / "b.bin")
    assert run("--preprocessed", tmp_path / "a.bin", tmp_path / "b.bin", "--model", tmp_path / "m.onnx") == 1
    assert "mirrored left to right" in flat(capsys.readouterr().out)


@pytest.fixture
def some_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Good and bad files in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.npy", "b.npy"):
        np.save(name, np.ones((1, 10), np.float32))
    Path("c.bin").write_bytes(b"\0" * 11)
    np.save("none0.npy", np.ones((0, 3)))
    np.save("complex.npy", np.ones(3, np.complex64))
    Path("empty.bin").touch()
    for folder, files in (("one", ("s1.npy", "s2.npy")), ("two", ("t1.npy", "t2.npy")), ("nothing", ())):
        Path(folder).mkdir()
        for file in files:
            np.save(Path(folder) / file, np.ones(3))
    Path("odd").mkdir()
    Path("odd/x.xyz").touch()
    Path("twice").mkdir()
    np.save("twice/s1.npy", np.ones(3))
    Path("twice/s1.bin").write_bytes(b"1234")


@pytest.mark.parametrize(
    ("words", "code", "what", "fix"),
    [
        ([], 2, "There is nothing to check", "--preprocessed"),
        (["--output", "a.npy"], 2, "--output has 1 path(s)", "--output TRAINING DEPLOYED"),
        (["--output", "-", "-"], 2, "names neither side", "leave --output out"),
        (["--output", "a.npy", "none.npy"], 2, "none.npy does not exist", "check the path"),
        (["--output", "a.npy", "b.npy", "--shape", "outptu=1x2"], 2, "no stage 'outptu'", "did you mean 'output'"),
        (["--output", "a.npy", "c.bin", "--shape", "1xA"], 2, "'1xA' is not a shape", "1x3x224x224"),
        (["--output", "a.npy", "c.bin", "--dtype", "flot"], 2, "'flot' is not a numeric type", "--dtype"),
        (["--output", "a.npy", "c.bin", "--dtype", "float32"], 2, "no whole number of values", "--dtype"),
        (["--output", "a.npy", "b.npy", "--input-tolerance=-1"], 2, "is negative", "0 or more"),
        (["--output", "a.npy", "b.npy", "--std", "0,1,1"], 2, "leaves nothing", "--std"),
        (["--output", "a.npy", "b.npy", "--scale", "0"], 2, "leaves nothing", "--scale"),
        (
            ["--output", "a.npy", "b.npy", "--std", "1,1", "--mean", "1,1,1"],
            2,
            "The mean has 3 numbers",
            "per channel",
        ),
        (["--output", "a.npy", "b.npy", "--scale", "0"], 2, "A scale or std of 0 leaves nothing", "--scale"),
        (
            ["--output", "none0.npy", "none0.npy"],
            2,
            "'none0' holds no values: its shape is [0, 3]",
            "write it again",
        ),
        (["--output", "a.npy", "complex.npy"], 2, "holds complex64 numbers", "real and imaginary"),
        (["--output", "one", "two"], 3, "is named like one of", "name the files"),
        (["--output", "one", "odd"], 2, "odd/x.xyz is none of .npy", "--dtype"),
        (["--output", "one", "twice"], 2, "two files for the sample 's1'", "keep one"),
        (["--output", "one", "nothing"], 2, "holds no values", "give .npy"),
        (["--output", "a.npy", "empty.bin"], 2, "empty.bin is empty", "write it again"),
    ],
)
def test_what_cannot_be_used_is_refused(
    some_files: None, capsys: pytest.CaptureFixture[str], words: list[str], code: int, what: str, fix: str
) -> None:
    assert run(*words) == code
    error = flat(capsys.readouterr().err)
    assert what in error
    assert fix in error.partition("fix:")[2]


def test_samples_without_a_partner_are_told(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folders / "board/s2.bin").unlink()
    assert run("--preprocessed", folders / "train", folders / "board") == 1
    assert "1 sample of training without a partner, left out: s2" in flat(capsys.readouterr().out)


def test_many_files_of_a_wrong_size_are_one_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for folder in ("one", "other"):
        Path(folder).mkdir()
    for number in range(6):
        values = rng.normal(size=(1, 3, 8, 8)).astype(np.float32)
        np.save(f"one/{number}.npy", values)
        values.ravel()[:100].tofile(f"other/{number}.bin")
    assert main(["check-io", "--preprocessed", "one", "other"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("were expected") == 1
    assert "0.bin, 1.bin, 2.bin and 3 more: 200 values of float16 where [1, 3, 8, 8] were expected" in out


def test_what_is_no_number_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "a.npy", values)
    for name, odd in (("nan", np.nan), ("inf", np.inf)):
        values[0, 0, 0, 0] = odd
        np.save(tmp_path / f"{name}.npy", values)
        assert run("--preprocessed", tmp_path / "a.npy", tmp_path / f"{name}.npy") == 1
        out = flat(capsys.readouterr().out)
        assert "FAIL one side is not finite" in out
        assert "1 sample of the deployed side with NaN or infinite values" in out
        assert run("--preprocessed", tmp_path / f"{name}.npy", tmp_path / f"{name}.npy") == 0
        assert "1 sample of training with NaN or infinite values" in flat(capsys.readouterr().out)


def test_switches_are_zeros_and_ones(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).normal(size=(1, 3, 16, 16)) > 0
    np.save(tmp_path / "a.npy", mask)
    np.save(tmp_path / "b.npy", mask.astype(np.float32))
    np.save(tmp_path / "c.npy", np.random.default_rng(1).normal(size=mask.shape))
    assert run("--preprocessed", tmp_path / "a.npy", tmp_path / "b.npy") == 0
    assert run("--preprocessed", tmp_path / "a.npy", tmp_path / "c.npy") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--dtype", "float99"), "'float99' is not a numeric type"),
        (("--dtype", "output=object"), "'object' is not a numeric type"),
        (("--force",), "--force has no effect without -o or --html"),
    ],
)
def test_options_are_looked_at_even_where_no_file_needs_them(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", np.ones((1, 3, 4, 4), np.float32))
    path = str(tmp_path / "a.npy")
    assert main(["check-io", "--preprocessed", path, path, *words]) == 2
    assert message in capsys.readouterr().err
