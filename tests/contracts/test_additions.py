"""What CONTRIBUTING promises of additions: the places it names are all there is to write."""

import math
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.demo import model_path
from roundoff.measure import metrics
from roundoff.measure.metrics import metric, ratio_db
from roundoff.measure.pairs import PairSums

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def psnr(monkeypatch: pytest.MonkeyPatch) -> str:
    """A metric that the package does not have, written as its table of additions says."""
    monkeypatch.setattr(metrics, "_METRICS", dict(metrics._METRICS))

    @metric("psnr_db", needs={"error_energy", "extremes"}, unit="dB", direction="higher", perfect=math.inf)
    def psnr_db(sums: PairSums) -> float:
        """Largest magnitude of the reference over the mean error, in decibels."""
        peak = max(abs(sums.reference.low), abs(sums.reference.high))
        return ratio_db(peak**2 * sums.count, sums.error_energy)

    return "psnr_db"


@pytest.fixture
def sides(tmp_path: Path) -> list[str]:
    """A tensor, and the same with an error of a hundredth of its peak."""
    found = []
    for name, change in (("reference", 0.0), ("candidate", 0.01)):
        np.savez(tmp_path / f"{name}.npz", x=np.array([1.0, 0.5, -0.25, 0.125], np.float32) + np.float32(change))
        found.append(str(tmp_path / f"{name}.npz"))
    return found


@pytest.mark.parametrize(("limit", "code"), [(39, 0), (41, 1)])
def test_a_metric_is_one_function(psnr: str, sides: list[str], limit: int, code: int, capsys: Captured) -> None:
    assert main(["compare", *sides, "--threshold", f"{psnr}={limit}"]) == code
    assert f"{psnr} >= {limit}" in capsys.readouterr().out


def test_its_docstring_explains_it(psnr: str, capsys: Captured) -> None:
    assert main(["explain", psnr]) == 0
    assert "psnr_db: largest magnitude of the reference over the mean error" in " ".join(
        capsys.readouterr().out.split()
    )


def test_commands_that_do_not_gather_what_it_needs_refuse_it(psnr: str, tmp_path: Path, capsys: Captured) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 8, 8), np.float32))
    words = ["sensitivity", str(model_path()), "--target", "generic-int8", "--data", str(tmp_path / "x.npy")]
    code = main([*words, "--metric", psnr, "-o", str(tmp_path / "run")])
    told = capsys.readouterr()
    assert code == 2
    assert psnr in told.err


def test_a_chip_is_one_file(tmp_path: Path, capsys: Captured) -> None:
    chip = tmp_path / "my-chip.toml"
    chip.write_text('extends = "generic-int8"\ndescription = "A chip of four bits."\ndefault_weight = "s4"\n')
    assert main(["targets", str(chip)]) == 0
    assert "A chip of four bits." in capsys.readouterr().out
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32))
    words = [
        str(model_path()),
        "--target",
        str(chip),
        "--data",
        str(tmp_path / "x.npy"),
        "-o",
        str(tmp_path / "q"),
    ]
    main(["quantize", *words])
    assert '"s4"' in (tmp_path / "q" / "plan.json").read_text("utf-8")
