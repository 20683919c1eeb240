"""The sample options of the command line."""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image

from roundoff.api.call import Call, DataOptions
from roundoff.api.inputs import open_data
from roundoff.cli.options import DATA, declare, typed_options, values
from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput
from roundoff.samples.options import Color, Filter, Layout, Resize, Resizer, SampleFormat
from roundoff.samples.sample_set import SampleSet

X = InputSpec("x", "float32", (1, 4))
EQUALS = InputSpec("x=1", "float32", (1, 4))
PICTURE = InputSpec("x", "float32", (1, 3, 4, 4))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="roundoff")
    declare(made, (DATA,))
    return made


def opened(words: list[Any], *inputs: InputSpec) -> SampleSet:
    args = parser().parse_args([str(word) for word in words])
    options = Call("samples", values(args, DATA.options), DataOptions).sample_options(limit=args.samples)
    return open_data(args.data or [], inputs or [X], options)  # type: ignore[return-value]


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    return tmp_path / "a.npy"


def test_a_plain_path_and_a_limit(numbers: Path) -> None:
    assert opened(["--data", numbers, "--samples", 2]).names == ("0", "1")


def test_named_paths(numbers: Path) -> None:
    samples = opened(["--data", f"x={numbers}", "--data", f"x=1={numbers}"], X, EQUALS)
    assert sorted(samples.feed(0)) == ["x", "x=1"]


def test_a_path_with_an_equals_sign(tmp_path: Path) -> None:
    np.save(tmp_path / "lr=0.1.npy", np.zeros((1, 4), np.float32))
    assert opened(["--data", tmp_path / "lr=0.1.npy"]).names == ("lr=0.1",)


def test_raw_options(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_bytes(np.arange(8, dtype=np.float16).tobytes())
    words = ["--data", tmp_path / "a.dat", "--data-format", "bin", "--raw-dtype", "float16", "--raw-shape", "1x4"]
    assert opened(words).feed(1)["x"].tolist() == [[4, 5, 6, 7]]


def test_image_options_reach_the_pixels(tmp_path: Path) -> None:
    array = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    Image.fromarray(array).save(tmp_path / "a.png")
    words = ["--data", tmp_path, "--image-color", "bgr", "--scale", "1/2", "--mean=-1,2,3", "--std", "4"]
    words += ["--image-layout", "nchw", "--image-resize", "letterbox", "--image-size", "4x4"]
    words += ["--image-filter", "area", "--image-pad", "3"]
    got = opened(words, PICTURE).feed(0)["x"]
    expected = (array[..., ::-1] * 0.5 - np.array([-1, 2, 3])) / 4
    np.testing.assert_array_equal(got[0], expected.transpose(2, 0, 1).astype(np.float32))


@pytest.mark.parametrize(
    ("words", "part", "fix"),
    [
        ([], "needs samples and none were given", "--data PATH"),
        (["--data", "A", "--data", "B"], "--data A does not say which input", "--data INPUT=A; inputs: x, other"),
        (["--data", "x=A", "--data", "x=B"], "'x' was given twice: A and B", "one --data per input"),
        (["--data", "othr=A"], "no input 'othr' (--data othr=A)", "did you mean 'other'?"),
        (["--data", "x=A"], "no samples for the input 'other'", "--data other=PATH"),
    ],
)
def test_which_data(words: list[str], part: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        opened(words, X, InputSpec("other", "float32", (1,)))
    assert part in caught.value.what
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--mean", "0.5"], "--mean cannot apply: the samples are .npy, not pictures"),
        (["--image-color", "rgb"], "--image-color cannot apply"),
        (["--image-resize", "none"], "options for pictures cannot apply"),
        (["--raw-dtype", "float32"], "--raw-dtype cannot apply: the samples are .npy, not raw files"),
        (["--data-format", "images"], "a.npy is npy, but images was asked for"),
    ],
)
def test_options_that_cannot_apply(numbers: Path, words: list[str], part: str) -> None:
    with pytest.raises(BadInput) as caught:
        opened(["--data", numbers, *words])
    assert part in caught.value.what


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--samples", "0"], "'0' is not a number of samples; write 1 or more"),
        (["--samples", "many"], "'many' is not a number of samples"),
        (["--raw-shape", "1x-3"], "'1x-3' is not a shape; write sizes from 1 on, as in 1x3x224x224"),
        (["--raw-shape", "x"], "'x' is not a shape"),
        (["--image-size", "224"], "'224' is not a size; write height x width, as in 224x224"),
        (["--image-size", "0x3"], "'0x3' is not a size"),
        (["--scale", "1/0"], "'1/0' is not a number; write one as in 0.5, 1/255 or 1/127.5"),
        (["--mean", "1,,2"], "'' is not a number"),
        (["--mean", "nan"], "'nan' is not a number"),
        (["--scale", "1/1e999"], "'1/1e999' is not a number"),
        (["--scale", "1/2/3"], "'1/2/3' is not a number"),
        (["--std", "1e999"], "'1e999' is not a number"),
        (["--image-color", "cmyk"], "invalid choice: 'cmyk'"),
    ],
)
def test_values_are_checked_when_parsed(capsys: pytest.CaptureFixture[str], words: list[str], part: str) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(words)
    assert caught.value.code == 2
    assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "number"),
    [("1/127.5", 1 / 127.5), ("2/255", 2 / 255), ("1e-3", 0.001), ("0.5", 0.5), (" -1 / 4 ", -0.25), ("3", 3.0)],
)
def test_numbers_and_quotients(text: str, number: float) -> None:
    args = parser().parse_args([f"--scale={text}", f"--mean={text},1", f"--std={text}"])
    assert (args.scale, args.mean, args.std) == (number, (number, 1.0), (number,))


def test_options_that_were_given_are_known() -> None:
    assert typed_options(parser().parse_args([]), DATA) == ()
    words = ["--scale", "1/255", "--samples", "3", "--data-format", "bin", "--raw-shape", "1x4", "--data", "x"]
    assert typed_options(parser().parse_args(words), DATA) == (
        "--data", "--samples", "--data-format", "--raw-shape", "--scale",
    )  # fmt: skip
    assert typed_options(parser().parse_args(["--data-format", "auto"]), DATA) == ()


def test_choices_are_those_of_the_library() -> None:
    choices = {action.dest: action.choices for action in parser()._actions if action.choices}
    assert choices == {
        "data_format": get_args(SampleFormat),
        "image_color": get_args(Color),
        "image_layout": get_args(Layout),
        "image_resize": get_args(Resize),
        "image_filter": get_args(Filter),
        "image_resizer": get_args(Resizer),
    }


def test_help_names_every_option_without_loading_numpy() -> None:
    code = (
        "import argparse, sys; from roundoff.cli.options import DATA, declare\n"
        "p = argparse.ArgumentParser(); declare(p, (DATA,)); print(p.format_help())\n"
        "assert not {'numpy', 'PIL', 'roundoff.samples'} & set(sys.modules)"
    )
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for option in ("--data PATH|INPUT=PATH", "--samples N", "--raw-shape", "--image-size HxW", "--mean", "--std"):
        assert option in text
