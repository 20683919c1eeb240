"""The run document: what was asked, on what, what was found; the only input of reports.

The types of its sections belong to the studies that make them, which stand above this module. They are named here
and imported when a document is read or written.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from roundoff.core.topology import Topology

if TYPE_CHECKING:
    from roundoff.core.accumulation import Accumulation
    from roundoff.core.audit import Audit
    from roundoff.core.calibration_check import CalibrationCheck
    from roundoff.core.channel_spread import ChannelReport
    from roundoff.core.comparison import Comparison
    from roundoff.core.distributions import DistributionReport
    from roundoff.core.findings import Diagnosis
    from roundoff.core.io_check import IoCheck
    from roundoff.core.layer_scores import LayerReport
    from roundoff.core.outliers import OutlierReport
    from roundoff.core.partial import PartialQuantization
    from roundoff.core.run_diff import RunDiff
    from roundoff.core.sensitivity_report import SensitivityReport
    from roundoff.core.transform_report import TransformReport
    from roundoff.core.tuning import Tuning
    from roundoff.core.worst_samples import WorstSamples

__all__ = ["SCHEMA", "Environment", "InputFile", "RunDocument", "load_section_types"]

# Raised whenever a reader of older documents would misread a newer one.
SCHEMA = 1

_SECTION_TYPES = {
    "Accumulation": "roundoff.core.accumulation",
    "Audit": "roundoff.core.audit",
    "CalibrationCheck": "roundoff.core.calibration_check",
    "ChannelReport": "roundoff.core.channel_spread",
    "Comparison": "roundoff.core.comparison",
    "DistributionReport": "roundoff.core.distributions",
    "Diagnosis": "roundoff.core.findings",
    "IoCheck": "roundoff.core.io_check",
    "LayerReport": "roundoff.core.layer_scores",
    "OutlierReport": "roundoff.core.outliers",
    "PartialQuantization": "roundoff.core.partial",
    "RunDiff": "roundoff.core.run_diff",
    "SensitivityReport": "roundoff.core.sensitivity_report",
    "TransformReport": "roundoff.core.transform_report",
    "Tuning": "roundoff.core.tuning",
    "WorstSamples": "roundoff.core.worst_samples",
}
"""Where the type of each section is defined."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file or folder the run read.

    Attributes:
        role: What it was used as: reference, candidate, model, quantized, rules, data, aliases.
        path: As the user gave it.
        size_bytes: Size, all files of a folder together.
        sha256: Hash, by which a changed input is noticed.
        hashed: What the hash is of: the content, or the names and sizes where it is more than 256 MiB or
            a file in it cannot be read.
    """

    role: str
    path: str
    size_bytes: int
    sha256: str
    hashed: Literal["content", "listing"]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and how long it ran; never part of what two runs are compared by."""

    roundoff: str
    python: str
    packages: dict[str, str]
    host: str
    arithmetic: str
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """One run. Everything but `environment` is the same, bit for bit, when the same is run twice.

    Attributes:
        schema: Version of this layout.
        command: The command line, word by word.
        inputs: What it read.
        network: The float network that the names are of; None when there is none.
        comparison: What a comparison found; None when it was none.
        layers: What a layer-by-layer run found; None when it was none.
        distributions: How values are distributed; None when that was not asked.
        channels: How channels differ; None when that was not asked.
        outliers: The outlier table; None when that was not asked.
        worst_samples: The ranking of samples; None when that was not asked.
        accumulation: Curves of accumulated error; None when none were measured.
        partial: What a sweep of partial quantization found; None when it was none.
        sensitivity: Rankings of what hurts; None when none were made.
        transform: What transforms and corrections brought; None when none were made.
        tuning: What a search for a better quantization found; None when it was none.
        io_check: What a check of a deployment's inputs and outputs found; None when it was none.
        calibration_check: What is wrong with a calibration set; None when none was checked.
        diagnosis: Why accuracy is lost, and what to do; None when that was not asked.
        diff: What differs between two other runs; None when none were compared.
        audit: Requested and effective precision of every node; None when that was not asked.
        environment: Versions, host and time.
    """

    schema: int
    command: tuple[str, ...]
    inputs: tuple[InputFile, ...]
    network: Topology | None = None
    comparison: "Comparison | None" = None
    layers: "LayerReport | None" = None
    distributions: "DistributionReport | None" = None
    channels: "ChannelReport | None" = None
    outliers: "OutlierReport | None" = None
    worst_samples: "WorstSamples | None" = None
    accumulation: "Accumulation | None" = None
    partial: "PartialQuantization | None" = None
    sensitivity: "SensitivityReport | None" = None
    transform: "TransformReport | None" = None
    tuning: "Tuning | None" = None
    io_check: "IoCheck | None" = None
    calibration_check: "CalibrationCheck | None" = None
    diagnosis: "Diagnosis | None" = None
    diff: "RunDiff | None" = None
    audit: "Audit | None" = None
    environment: Environment


def load_section_types() -> None:
    """Import the types that the fields of a document name, so that pydantic can look them up in this module."""
    for name, module in _SECTION_TYPES.items():
        globals().setdefault(name, getattr(import_module(module), name))
