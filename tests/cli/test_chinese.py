"""Where Chinese is spoken, whole sentences are Chinese."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from benchmarks.planted.faults import FAULTS

from roundoff.cli import main
from tests.cli.english import english_runs
from tests.planted.test_faults import planted

SNAPSHOTS = Path(__file__).parent / "snapshots"
# Those whose findings and reasons stay English, which docs/reference/language.md says.
ENGLISH = {"audit", "bundle"}
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


@pytest.mark.parametrize("path", sorted(SNAPSHOTS.glob("*_80_zh.txt")), ids=lambda path: path.stem)
def test_what_commands_print_has_no_english_sentence(path: Path) -> None:
    if path.stem.removesuffix("_80_zh") not in ENGLISH:
        assert english_runs(path.read_text("utf-8")) == []


def test_english_is_found_where_it_is() -> None:
    assert english_runs("量程 the ranges are too wide") == ["the ranges are too wide"]
    assert english_runs("解决办法  without such,\n            equalize the channels") != []
    assert english_runs("'a name of many words' 的权重 scale 为 0.5 dB") == []
    assert english_runs("  下一步    roundoff diagnose a --data b --fix -o out please again") == []
