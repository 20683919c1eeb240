"""What repairs claim, against samples that nobody had: `diagnose --fix` and `tune` on planted faults."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planted.case import PlantedCase
from benchmarks.planted.faults import FAULTS
from benchmarks.planted.subject import run, sqnr, subject
from roundoff.core.tensors import Array
from roundoff.graph.interface import outputs
from roundoff.graph.load import load_model

__all__ = ["OTHERS", "Claim", "RepairCase", "repair_cases"]

OTHERS = 512
"""Samples on which a claim is checked."""
# What a figure may be less on other samples: a decibel; of a share a hundredth, or what its own interval says.
_SLACK = {"dB": 1.0}
# A search may take so long.
_TIME = "60s"
_FIXED = (
    "clipped-activation",
    "clipped-weight",
    "few-bits",
    "range-too-wide",
    "narrow-calibration",
    "outlier-weight-channel",
    "mixed-range-add",
    "mixed-range-concat",
    "coarse-everywhere",
    "two-quantizers",
)
_TUNED = ("outlier-weight-channel", "outlier-activation-channel", "mixed-range-concat")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a repair says of its model.

    Attributes:
        value: The figure.
        unit: ``dB`` at the outputs, or ``share`` of samples whose class stays.
        slack: What it may be less on other samples.
    """

    value: float
    unit: str
    slack: float


@dataclass(frozen=True, slots=True)
class RepairCase:
    """A planted case that is to be repaired.

    Attributes:
        case: The case, of a quantized file or of a chip.
        command: ``fix`` for `diagnose --fix`, ``tune``.
        others: Samples of the same kind that the user does not have.
    """

    case: PlantedCase
    command: str
    others: Callable[[int], Mapping[str, Array]]

    @property
    def fault(self) -> str:
        return f"{self.command}-{self.case.fault}"

    @property
    def family(self) -> str:
        return self.case.family

    @property
    def name(self) -> str:
        return f"{self.fault}/{self.case.family}/{self.case.seed}"

    def write(self, folder: Path) -> list[str]:
        """Write the files of a user; gives the words of the command line."""
        arguments = [
            *self.case.write(folder),
            "-o",
            str(folder / "repaired"),
            "--force",
            "--time",
            _TIME,
            "--json",
        ]
        return ["diagnose", *arguments, "--fix"] if self.command == "fix" else ["tune", *arguments]

    def claim(self, document: Mapping[str, Any]) -> Claim | None:
        """What is claimed for the delivered model; None where nothing is."""
        if self.command == "fix":
            repair = document.get("diagnosis", {}).get("repair")
            if not repair or not repair["measures"]:
                return None
            measure = repair["measures"][0]
            return Claim(float(measure["after"]), measure["unit"] or "share", _SLACK.get(measure["unit"], 0.01))
        tuning = document.get("tuning")
        if not tuning:
            return None
        # Of samples outside of the search, where it had some; with the interval that it gives itself.
        held = tuning.get("holdout") or {**tuning, "score": tuning["trials"][tuning["answer"] - 1]["score"]}
        unit = "dB" if "db" in tuning["metric"].lower() else "share"
        slack = _SLACK.get(unit, 0.01)
        if unit == "share" and held["interval"]:
            slack = max(slack, held["score"] - (held["float_score"] - held["interval"][1]))
        return Claim(float(held["score"]), unit, slack)

    def on_others(self, folder: Path, unit: str) -> float | None:
        """The same figure of the model that was written, on other samples; None without a model."""
        written = next((folder / "repaired").rglob("*fake_quant_model.onnx"), None)
        if written is None:
            return None
        model = load_model(written)
        samples = self.others(OTHERS)
        names = outputs(self.case.model)
        exact = run(self.case.model, samples, names)
        made = dict(zip(names, run(model, samples, outputs(model)).values(), strict=True))
        if unit == "dB":
            return min(sqnr(exact[name], made[name]) for name in names)
        return float(np.mean([(exact[n].argmax(-1) == made[n].argmax(-1)).mean() for n in names]))


def repair_cases(family: str, seed: int) -> Iterator[tuple[str, Callable[[], RepairCase | None]]]:
    """Every repair of a network by name; None where the network has no place for the fault."""
    for command, faults in (("fix", _FIXED), ("tune", _TUNED)):
        for fault in faults:
            yield f"{command}-{fault}/{family}/{seed}", partial(_repair, command, fault, family, seed)


def _repair(command: str, fault: str, family: str, seed: int) -> RepairCase | None:
    network = subject(family, seed)
    case = FAULTS[fault](network, network.rng(fault))
    if case is None or (command == "tune" and not case.target):
        return None
    return RepairCase(case, command, network.built.others)
