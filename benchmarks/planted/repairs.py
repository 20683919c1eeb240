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
from roundoff.diagnosis.result import CERTAIN_DB
from roundoff.graph.interface import output_parts, outputs
from roundoff.graph.load import load_model
from roundoff.graph.shapes import values

OTHERS = 512
"""Samples on which a claim is checked."""
# What a figure may be less on other samples, where it has no interval that says more.
_SLACK = {"dB": 1.0, "mean dB": 1.0}
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
        unit: ``dB`` of all samples together, ``mean dB`` of single ones, or ``share`` that keeps its class.
        slack: What it may be less on other samples: a decibel, a hundredth, what its own interval says, or nothing
            where it is a bound.
        part: What decibels are of; empty for the output that is worst off.
        exact: Whether it is told as a figure, so that it may not be more either.
    """

    value: float
    unit: str
    slack: float
    part: str = ""
    exact: bool = False


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
            measure, interval = repair["measures"][0], repair["interval"]
            part, value = measure["what"]["arguments"].get("name", ""), measure["after"]
            lowest = value if interval is None else interval[0]
            if measure["unit"] == "dB" and interval is not None:
                # As it is told: a figure, or what others have at least.
                figure = max(abs(end - value) for end in interval) <= CERTAIN_DB
                return (
                    Claim(value, "dB", CERTAIN_DB, part, exact=True) if figure else Claim(lowest, "dB", 0.0, part)
                )
            return _claim(value, measure["unit"] or "share", lowest, part)
        tuning = document.get("tuning")
        if not tuning:
            return None
        # Of samples outside of the search, where it had some; with the interval of the loss that it gives itself.
        held = tuning.get("holdout") or {**tuning, "score": tuning["trials"][tuning["answer"] - 1]["score"]}
        lowest = held["float_score"] - held["interval"][1] if held["interval"] else held["score"]
        return _claim(held["score"], "mean dB" if "db" in tuning["metric"].lower() else "share", lowest)

    def on_others(self, folder: Path, claim: Claim) -> float | None:
        """The same figure of the model that was written, on other samples; None without a model."""
        written = next((folder / "repaired").rglob("*fake_quant_model.onnx"), None)
        if written is None:
            return None
        model, given, samples = load_model(written), self.case.model, self.others(OTHERS)
        names = outputs(given)
        exact = run(given, samples, names)
        made = dict(zip(names, run(model, samples, outputs(model)).values(), strict=True))
        if claim.unit == "share":
            return float(np.mean([(exact[n].argmax(-1) == made[n].argmax(-1)).mean() for n in names]))
        if claim.unit == "mean dB":
            pairs = [zip(exact[name], made[name], strict=True) for name in names]
            return float(np.mean([[sqnr(*pair) for pair in each] for each in pairs]))
        feed = {name: (1, *array.shape[1:]) for name, array in samples.items()}
        shapes = {each.name: each.shape for each in values(given, feed) if each.shape is not None}
        parts = output_parts(given, {name: (1, *exact[name].shape[1:]) for name in names}, shapes)
        chosen = [each for each in parts if claim.part in ("", each.source or each.output)]
        return min(sqnr(each.of(exact[each.output]), each.of(made[each.output])) for each in chosen or parts)


def _claim(value: float, unit: str, lowest: float, part: str = "") -> Claim:
    return Claim(float(value), unit, max(_SLACK.get(unit, 0.01), float(value) - float(lowest)), part)


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
