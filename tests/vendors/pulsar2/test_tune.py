"""pulsar2 tune on a network that 8 bits ruin and 16 bits save."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from rich.cells import cell_len

from roundoff.cli import main
from roundoff.errors import BadInput
from roundoff.search.strategies.flow_charts import ChartGoal
from roundoff.vendors.pulsar2.build import BuildOptions, build
from roundoff.vendors.pulsar2.config.files import load_config
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.tables import Log
from roundoff.vendors.pulsar2.tune import decisions_table, tune_build
from tests.models import value, wrapped
from tests.vendors.pulsar2.nets import imbalanced, mixed, write_all


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configuration(*overrides: tuple[str, str | None]) -> BuildConfig:
    return load_config(Path("config.json"), [("input", "net.onnx"), ("output_dir", "out"), *overrides])


def test_16_bits_where_8_are_not_enough(folder: Path) -> None:
    write_all(folder, imbalanced())
    log = Log()
    tuned = tune_build(configuration(), log)
    followed = tuned.followed
    assert followed.met
    assert followed.decisions[0].cosine is not None
    assert followed.decisions[0].cosine < 0.98
    assert followed.cosine is not None
    assert followed.cosine > 0.98
    assert "together" in followed.settings.raised
    assert [each.chart for each in followed.decisions][:4] == ["A", "A", "A", "B"]
    assert tuned.verified
    assert any(line.startswith("good enough: the worst output has a cosine of") for line in log.lines)


def test_the_final_configuration_gives_the_reported_cosine(folder: Path) -> None:
    write_all(folder, imbalanced())
    tuned = tune_build(configuration(), Log())
    final = load_config(Path("out/config.json"), [("output_dir", "again")])
    assert final.quant == tuned.config.quant
    result = build(final, Log())
    assert result.analysis is not None
    assert result.analysis.output_cosine == pytest.approx(tuned.followed.cosine, abs=1e-9)
    document = json.loads(Path("out/tuning.json").read_text())
    assert document["verified"]
    assert document["output_cosine_of_build"] == pytest.approx(document["output_cosine"], abs=1e-9)
    assert document["layers"] == dict(tuned.followed.settings.raised)
    assert len(document["decisions"]) == len(tuned.followed.decisions)


def test_what_is_good_enough_stays_as_it_is(folder: Path) -> None:
    write_all(folder, mixed())
    tuned = tune_build(configuration(), Log())
    assert [each.method for each in tuned.followed.decisions] == ["MinMax"]
    assert tuned.config.quant.layer_configs == ()


def test_a_goal_out_of_reach_ends_in_a_ticket(folder: Path) -> None:
    write_all(folder, mixed())
    log = Log()
    tuned = tune_build(configuration(), log, goal=ChartGoal(0.9999999, 0.9999999), methods=("MinMax", "KL"))
    assert not tuned.followed.met
    assert tuned.followed.stuck
    assert tuned.verified
    assert any("roundoff bundle out -o case.zip" in line for line in log.lines)
    # What was typed before stays, and more layers have 16 bits than before.
    assert tuned.config.quant.layer_configs


def test_the_ticket_of_a_missed_goal_says_the_goal(folder: Path) -> None:
    write_all(folder, mixed())
    words = ["pulsar2", "tune", "--config", "config.json", "--input", "net.onnx", "--output_dir", "out"]
    assert main([*words, "--min_cosine", "0.999999", "--methods", "MinMax"]) == 1
    assert main(["bundle", "out", "-o", "case.zip"]) in {0, 1}
    reached = json.loads(Path("out/tuning.json").read_text())["output_cosine"]
    with zipfile.ZipFile("case.zip") as case:
        texts = "".join(case.read(name).decode() for name in case.namelist() if name.endswith((".md", ".txt")))
    said = f"goal missed: the worst output has a cosine of {reached:.5f}, not above 0.999999, whatever was tried"
    assert said in " ".join(texts.split())
    assert texts.startswith("Accuracy goal missed: ")


def test_layers_that_read_the_result_of_a_raised_one_are_raised_next(folder: Path) -> None:
    write_all(folder, mixed())
    tuned = tune_build(configuration(), Log(), goal=ChartGoal(0.99999, 0.99999))
    looks = [each for each in tuned.followed.decisions if each.analysis == "PerLayer"]
    raised = [each.raised for each in looks]
    assert raised == sorted(set(raised))
    assert set(tuned.followed.settings.raised.values()) <= {"U16", "S16"}
    # Operands of a product of two activations are signed.
    assert tuned.followed.settings.raised.get("scores", "S16") == "S16"


def test_with_integers_and_with_samples_of_its_own(folder: Path) -> None:
    write_all(folder, imbalanced())
    other = Path("others")
    other.mkdir()
    np.save(other / "0.npy", np.random.default_rng(99).normal(0, 1, (1, 3, 8, 8)).astype(np.float32))
    overrides = [("quant.precision_analysis_mode", "NPUBackend"), ("quant.input_sample_dir", "others")]
    tuned = tune_build(configuration(*overrides), Log())
    assert tuned.verified
    assert tuned.followed.met


def test_nothing_to_tune(folder: Path) -> None:
    write_all(folder, mixed())
    with pytest.raises(BadInput, match="nothing is quantized, so there is nothing to tune"):
        tune_build(configuration(("quant.highest_mix_precision", "1")), Log())


def test_a_model_without_anything_to_quantize(folder: Path) -> None:
    nodes = [helper.make_node("Identity", ["image"], ["y"], name="same")]
    write_all(folder, wrapped(nodes, [value("image", (1, 3, 8, 8))], [value("y")]))
    with pytest.raises(BadInput, match="is quantized, so there is nothing to tune"):
        tune_build(configuration(), Log())


def test_an_earlier_result_is_kept(folder: Path) -> None:
    write_all(folder, mixed())
    tune_build(configuration(), Log())
    with pytest.raises(BadInput, match="already holds a result"):
        tune_build(configuration(), Log())
    tune_build(configuration(), Log(), options=BuildOptions(force=True))


def test_the_table_fits_the_terminal(folder: Path) -> None:
    write_all(folder, imbalanced())
    decisions = tune_build(configuration(), Log()).followed.decisions
    for width in (80, 160):
        lines = decisions_table(decisions, width=width).split("\n")
        assert max(map(cell_len, lines)) <= width
        assert not any("…" in line for line in lines[3:])
