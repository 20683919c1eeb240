"""Where Chinese is spoken, whole sentences are Chinese."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from benchmarks.planted.faults import FAULTS

from roundoff.cli import main
from roundoff.core.tensors import Array
from tests.cli.english import english_runs
from tests.planted.test_faults import planted

# One of each cause, on files and on dumps.
PLANTED = (
    "bias-overflow", "clipped-activation", "coarse-everywhere", "corrupted-bias", "corrupted-codes", "few-bits",
    "floored-weights", "mixed-range-concat", "narrow-calibration", "outlier-weight-channel", "range-too-wide",
    "two-weights", "fp16-saturated", "kernel-wrong-channels", "layout-in-dump", "preprocessing-on-device",
    "preprocessing-unseen", "requantized-wrong", "samples-in-another-order", "short-accumulator", "stale-tensor",
    "swapped-channels", "truncated-everywhere", "wrong-offset-in-dump",
)  # fmt: skip


def told(*words: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        main([*words, "--lang", "zh"])
    return out.getvalue()


@pytest.mark.parametrize("fault", PLANTED)
def test_a_diagnosis_has_no_english_sentence(fault: str, tmp_path: Path) -> None:
    assert fault in FAULTS
    text = told("diagnose", *planted(fault).write(tmp_path / "case"), "-o", str(tmp_path / "run"))
    assert english_runs(text) == []
    assert english_runs(told("explain", "1", str(tmp_path / "run"))) == []


def _changed(pixels: Array) -> dict[str, tuple[Array, Array]]:
    """What training and the deployed side make of pixels [n, 3, height, width], by what is wrong with it."""
    mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)
    right = (pixels / 255 - mean) / np.float32(0.225)
    return {
        "order of channels": (right, right[:, ::-1]),
        "no normalization": (right, pixels / 255),
        "layout": (right, right.transpose(0, 2, 3, 1)),
        "reshaped": (right, right.transpose(0, 2, 3, 1).reshape(right.shape)),
        "mirrored": (right, right[..., ::-1]),
        "shifted": (right, np.roll(right, (2, 1), (-2, -1))),
        "bytes": (pixels.astype(np.uint8), pixels.astype(np.uint8).view(np.int8)),
        "half": (right, right.astype(np.float16).astype(np.float32)),
        "unknown": (right, right + np.random.default_rng(1).normal(0, 0.5, right.shape).astype(np.float32)),
    }


PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize("wrong", _changed(PIXELS))
def test_a_check_of_inputs_has_no_english_sentence(wrong: str, tmp_path: Path) -> None:
    sides = [str(tmp_path / "training.npy"), str(tmp_path / "board.npy")]
    for side, values in zip(sides, _changed(PIXELS)[wrong], strict=True):
        np.save(side, np.ascontiguousarray(values))
    text = told("check-io", "--preprocessed", *sides)
    assert text.startswith("不一致")
    assert english_runs(text) == []


def test_english_is_found_where_it_is() -> None:
    assert english_runs("量程 the ranges are too wide") == ["the ranges are too wide"]
    assert english_runs("解决办法  without such,\n            equalize the channels") != []
    assert english_runs("'a name of many words' 的权重 scale 为 0.5 dB") == []
    assert english_runs("  下一步    roundoff diagnose a --data b --fix -o out please again") == []
