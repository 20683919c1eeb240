"""``roundoff diagnose --fix`` where no place is to blame: the remedy, a search, is carried out."""

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.document import load_document
from tests.diagnosis.deep import CHIP, WIDTH, deep_inputs, save_deep

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    save_deep(Path("deep.onnx"))
    Path("chip.toml").write_text(CHIP)
    np.save("inputs.npy", deep_inputs())

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["diagnose", "deep.onnx", "--data", "inputs.npy", *words])
        return (code, *capsys.readouterr())

    return call


def test_the_proof_is_told_and_fix_is_offered(run: Run) -> None:
    code, out, _ = run("--target", "chip.toml")
    text = " ".join(out.replace("\\\n", "").split())
    assert (code, out.startswith("DISTRIBUTED: ")) == (1, True)
    assert "worst of 20 places in float" in text or "worst of 21 places in float" in text
    assert "dB, with as many at random " in text
    assert "(golden inputs): SQNR of 'y' " in text
    assert "roundoff diagnose deep.onnx --data inputs.npy --target chip.toml --fix -o repaired" in text
    assert len(out.splitlines()) <= 24


def test_the_search_is_run_and_what_it_finds_is_written(run: Run) -> None:
    code, out, err = run("--target", "chip.toml", "--fix", "-o", "found")
    text = " ".join(out.split())
    # What is chosen on 32 samples is better on 16 others, which cannot say by how much.
    assert code == 1, out + err
    assert "searching for a better recipe for chip" in err
    assert "trial 1: plain" in err
    assert "BETTER: SQNR of 'y' " in text
    found = load_document(Path("found")).diagnosis
    assert found is not None
    assert found.repair is not None
    step, *_ = found.repair.steps
    repair = found.repair
    assert (step.finding, step.kept, repair.reached, repair.used, repair.held_out) == (1, True, False, 32, 16)
    assert repair.interval is not None
    assert repair.gain is not None
    assert repair.gain[0] > 0
    assert str(step.title).startswith("search, ")
    assert step.measure.after > step.measure.before + 3
    assert max(map(len, (*out.splitlines(), *err.splitlines()))) <= 80
    # What was written keeps what was measured, by the command that is offered.
    command = shlex.split(found.next_steps[0])
    assert command[:3] == ["roundoff", "diagnose", "found/deep_float_model.onnx"]
    held_out = command.index("HELD_OUT")
    assert command[held_out - 1] == "--data"
    command[held_out] = "inputs.npy"
    assert main([*command[1:], "-o", "again"]) in (0, 1)
    assert found.next_steps[1] == "roundoff export-settings found --dialect all -o settings"
    again = load_document(Path("again")).diagnosis
    assert again is not None
    # On a thousand others it lies where the repair said it does.
    np.save("inputs.npy", np.random.default_rng(77).standard_normal((1000, WIDTH)).astype(np.float32))
    main([*command[1:], "-o", "others"])
    others = load_document(Path("others")).diagnosis
    assert others is not None
    low, high = repair.interval
    assert low <= others.measures[0].before <= high


def test_a_metric_of_the_user_decides(run: Run) -> None:
    Path("near.py").write_text(
        "import numpy as np\nNAME = 'nearness'\nGIVEN = np.load('inputs.npy')\n\n\n"
        "def evaluate(run, samples):\n"
        "    return [float(1 / (1 + np.abs(run(feed)['y']).mean())) for feed in samples]\n"
    )
    _, _, err = run("--target", "chip.toml", "--evaluator", "near.py", "--fix", "-o", "found")
    found = load_document(Path("found")).diagnosis
    assert found is not None
    assert "nearness: float " in err
    if found.repair is not None:
        assert str(found.repair.measures[0].what) == "nearness"


def test_a_model_of_another_tool_is_searched_for_a_chip_like_its_own(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", "deep.onnx", "--data", "inputs.npy", "--target", "chip.toml", "-o", "quantized"]) == 1
    capsys.readouterr()
    given = "quantized/deep_fake_quant_model.onnx"
    code, out, _ = run("--quantized", given, "--fix", "-o", "found")
    text = " ".join(out.split())
    assert code == 1
    assert "NOT REPAIRED" in text
    assert "name a chip with --target" in text
    assert not Path("found/plan.json").exists()


def test_without_time_no_search_is_begun(run: Run) -> None:
    code, out, err = run("--target", "chip.toml", "--fix", "-o", "found", "--time", "0.001s")
    assert code == 1
    assert "trial" not in err
    assert "not seen" in out
