"""sensitivity_analysis and select_sensitive_samples."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roundoff.vendors.horizon as dbg
from roundoff.studies.sensitivity.exact import ExactEngine
from tests.vendors.horizon.support import SAMPLES, cosine_with_only

Case = tuple[str, str]
ALL = (
    "q:image", "q:Conv1:weight", "q:relu1", "q:Conv2:weight", "q:relu2", "q:pooled", "q:flat",
    "q:Classifier:weight", "q:logits",
)  # fmt: skip


def test_more_and_more_nodes_become_float(case: Case, here: Path) -> None:
    found = dbg.sensitivity_analysis(
        case[0], case[1], data_num=None, sensitive_nodes=["Conv1", "w3_HzCalibration"]
    )
    assert list(found) == ["calibrated_model", "Conv1", "w3_HzCalibration"]
    left = [name for name in ALL if name not in ("q:image", "q:Conv1:weight")]
    for key, on in (
        ("calibrated_model", ALL),
        ("Conv1", left),
        ("w3_HzCalibration", [name for name in left if name != "q:Classifier:weight"]),
    ):
        value = found[key]
        assert isinstance(value, float)
        assert 1 - value == pytest.approx(1 - cosine_with_only(case[0], *on), rel=1e-3)
    stored = json.loads((here / "debug_result" / "sensitivity_analysis.json").read_text(encoding="utf-8"))
    assert stored["scores"] == found
    assert stored["per_output"]["Conv1"] == {"logits": found["Conv1"]}


def test_nodes_at_or_below_the_threshold_are_picked(case: Case, here: Path) -> None:
    ranking = dbg.get_sensitivity_of_nodes(case[0], calibrated_data=case[1], data_num=None)
    values = [scores["cosine-similarity"] for scores in ranking.values()]
    found = dbg.sensitivity_analysis(
        case[0], case[1], pick_threshold=values[1], data_num=None, output_separated=True, save_dir="out"
    )
    assert list(found) == ["calibrated_model", *list(ranking)[:2]]
    assert all(isinstance(value, dict) and list(value) == ["logits"] for value in found.values())
    worst = max(dbg.get_sensitivity_of_nodes(case[0], "mse", case[1]).values(), key=lambda each: each["mse"])[
        "mse"
    ]
    picked = dbg.sensitivity_analysis(case[0], case[1], metric="mse", pick_threshold=worst)
    assert len(picked) == 2


def test_everything_in_16_bits_is_better_than_in_8(case: Case, here: Path) -> None:
    names = ["Conv1", "Conv2", "Pool", "Flatten", "Classifier", "logits_HzCalibration"]
    found = dbg.sensitivity_analysis(case[0], case[1], metric="sqnr", sensitive_nodes=names, qtype="int16")
    scores = [value for value in found.values() if isinstance(value, float)]
    # The range stays what it is, so that the largest values are still clipped by up to half an old step.
    assert scores[-1] > scores[0] + 6
    perfect = dbg.sensitivity_analysis(case[0], case[1], metric="sqnr", sensitive_nodes=names)
    assert perfect["logits_HzCalibration"] == np.inf


def test_errors_say_what_to_write(case: Case) -> None:
    with pytest.raises(ValueError, match="no qtype 'int32'"):
        dbg.sensitivity_analysis(case[0], case[1], qtype="int32")
    with pytest.raises(TypeError, match=r"pick_threshold is '0\.9'"):
        dbg.sensitivity_analysis(case[0], case[1], pick_threshold="0.9")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pick_threshold is NaN, which no score reaches"):
        dbg.sensitivity_analysis(case[0], case[1], pick_threshold=math.nan)
    with pytest.raises(TypeError, match=r"pick_threshold is '0\.9'"):
        dbg.runall(case[0], case[1], pick_threshold="0.9")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_sample is 9, but there are 4"):
        dbg.select_sensitive_samples(case[0], case[1], "mse", 9)
    with pytest.raises(TypeError, match=r"num_sample is 1\.5"):
        dbg.select_sensitive_samples(case[0], case[1], "mse", 1.5)  # type: ignore[arg-type]


def test_a_folder_below_a_file_is_told_before_the_work(case: Case, here: Path) -> None:
    (here / "taken").write_text("", encoding="utf-8")
    for name in ("taken", "taken/below"):
        with pytest.raises(ValueError, match=f"save_dir {name} cannot be made: taken is not a folder"):
            dbg.sensitivity_analysis(case[0], case[1], save_dir=name)


def test_ctrl_c_leaves_no_part_of_a_ranking(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = ExactEngine.measure

    def impatient(self: ExactEngine, *given: Any, **more: Any) -> Iterator[object]:
        yield next(measure(self, *given, **more))
        raise KeyboardInterrupt

    monkeypatch.setattr(ExactEngine, "measure", impatient)
    with pytest.raises(KeyboardInterrupt):
        dbg.get_sensitivity_of_nodes(case[0], case[1], node_type="node")


def test_the_worst_samples_come_first(case: Case, here: Path) -> None:
    found = dbg.select_sensitive_samples(case[0], case[1], "cosine-similarity", SAMPLES)
    assert sorted(found.names) == ["0", "1", "2", "3"]
    scores: list[Any] = [
        dbg.sensitivity_analysis(case[0], found[at : at + 1], sensitive_nodes=["Conv1"])["calibrated_model"]
        for at in range(SAMPLES)
    ]
    assert scores == sorted(scores)
    assert dbg.select_sensitive_samples(case[0], case[1], "cosine-similarity", 1).names == found.names[:1]
