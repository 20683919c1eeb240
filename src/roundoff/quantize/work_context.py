"""What transforms and corrections work with besides the model: the chip, the samples, limits."""

from dataclasses import dataclass, field

from roundoff.core.progress import SILENT, Progress
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.core.transform_report import Participation
from roundoff.runtime.feeds import Samples

__all__ = ["Participation", "WorkContext"]


@dataclass(frozen=True, slots=True)
class WorkContext:
    """What a step works with.

    Attributes:
        target: For which chip.
        samples: Calibration samples.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take.
        progress: Told how far it is.
        memory: What steps computed and may need again, by a name that says from what.
    """

    target: Target
    samples: Samples
    threads: int | None = None
    max_memory: int | None = None
    progress: Progress = SILENT
    memory: dict[str, Array] = field(default_factory=dict, compare=False)
