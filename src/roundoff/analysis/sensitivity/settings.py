"""What to measure, and with what effort."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from roundoff.core.sensitivity import Mode, Subject, SubjectKind
from roundoff.runtime.blocks.network import Arithmetic

__all__ = ["ALL_KINDS", "SensitivitySettings"]

ALL_KINDS: tuple[SubjectKind, ...] = ("node", "weight", "activation")


@dataclass(frozen=True, slots=True)
class SensitivitySettings:
    """Settings of a sensitivity analysis.

    Attributes:
        kinds: Which rankings to make.
        metrics: Metric names; the first one ranks.
        outputs: Tensors to compare, or nodes whose outputs are meant; the model's outputs when empty.
        nodes: Names or globs: only subjects whose node, tensor or quantizer they match.
        groups: More subjects, each a list of names or globs of nodes, tensors or quantizers.
        subjects: Exactly what to switch, instead of all that kinds, nodes and groups say.
        mode: Whether a subject is quantized alone, or alone left out of the quantization.
        samples: How many samples to use, evenly spread; all when None.
        first_samples: How many of them all subjects are measured on before the leading ones are measured on all.
        top: How many ranks are to be right; those that might be among them count as leading.
        exact: Measure all subjects on all samples at once.
        fast: Estimate all subjects on the first samples, from gradients; measure only the leading ones, on these.
        probes: Random combinations of the outputs that an estimate looks at in each of the first samples; more of
            them where there are fewer samples.
        budget_s: Seconds after which no more is measured; None for no limit.
        max_memory: Bytes the process may take; most of the free memory when None.
        threads: Threads to use; all cores when None.
        arithmetic: How the model is run; precise for an exact analysis and fast otherwise when None.
        blocks: How many blocks the model is cut into; by default what is fastest.
        seed: Decides in which order subjects are measured when time is limited, and what estimates look at.
    """

    kinds: tuple[SubjectKind, ...] = ALL_KINDS
    metrics: tuple[str, ...] = ("sqnr_db", "cosine", "mse", "mean_relative_error", "chebyshev")
    outputs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    subjects: tuple[Subject, ...] = ()
    mode: Mode = "alone"
    samples: int | None = None
    first_samples: int = 16
    top: int = 10
    exact: bool = False
    fast: bool = False
    probes: int = 3
    budget_s: float | None = None
    max_memory: int | None = None
    threads: int | None = None
    arithmetic: Arithmetic | None = None
    blocks: int | None = None
    seed: int = 0
