"""What is switched, nodes, single quantizers and groups that the user names, and with what effort."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from roundoff.core.quantizers import Quantizer, SubjectKind, SwitchedSubject
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.switches import MOST_NAMED, Switches
from roundoff.messages.message import english, some
from roundoff.run.block_network import BlockArithmetic
from roundoff.studies.sensitivity.result import Mode

ALL_KINDS: tuple[SubjectKind, ...] = ("node", "weight", "activation")

FIRST_SAMPLES = 16
"""Samples that all subjects are measured on before the leading ones are measured on all."""

FAST_FIRST_SAMPLES = 4
"""The same of a fast analysis. Getting ready takes most of its time: two samples save at most a sixth more, and
rank worse. 51 nodes of a RepVGG they rank as all samples do with a Spearman correlation of 0.82, four with 0.93,
eight with 0.94."""

FAST_SAMPLES = 16
"""Samples that the leading subjects of a fast analysis are measured on: as many as others begin with."""


@dataclass(frozen=True, slots=True)
class SensitivitySettings:
    """Settings of a sensitivity analysis.

    Attributes:
        kinds: Which rankings to make.
        metrics: Metric names; the first one ranks.
        outputs: Tensors to compare, or nodes whose outputs are meant; the model's outputs when empty.
        parts: Score what own branches compute of an output (boxes, scores) apart, as searches are judged.
        nodes: Names or globs: only subjects whose node, tensor or quantizer they match.
        groups: More subjects, each a list of names or globs of nodes, tensors or quantizers.
        subjects: Exactly what to switch, instead of all that kinds, nodes and groups say.
        mode: Whether a subject is quantized alone, or alone left out of the quantization.
        samples: How many samples to use, evenly spread; all when None.
        first_samples: How many of them all subjects are measured on before the leading ones are measured on all;
            16, or 4 in a fast analysis, when None.
        top: How many ranks are to be right; those that might be among them count as leading.
        exact: Measure all subjects on all samples at once.
        fast: Take fewer samples: few first, and for the leading subjects no more than 16 or the first ones.
        budget_s: Seconds after which no more is measured; None for no limit.
        max_memory: Bytes the process may take; most of the free memory when None.
        threads: Threads to use; all cores when None.
        arithmetic: How the model is run; precise for an exact analysis and fast otherwise when None.
        blocks: How many blocks the model is cut into; by default what is fastest.
        seed: Decides in which order subjects are measured when time is limited.
    """

    kinds: tuple[SubjectKind, ...] = ALL_KINDS
    metrics: tuple[str, ...] = ("sqnr_db", "cosine", "mse", "mean_relative_error", "chebyshev")
    outputs: tuple[str, ...] = ()
    parts: bool = False
    nodes: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    subjects: tuple[SwitchedSubject, ...] = ()
    mode: Mode = "alone"
    samples: int | None = None
    first_samples: int | None = None
    top: int = 10
    exact: bool = False
    fast: bool = False
    budget_s: float | None = None
    max_memory: int | None = None
    threads: int | None = None
    arithmetic: BlockArithmetic | None = None
    blocks: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            BadInput: The analysis is to be exact and fast.
        """
        if self.exact and self.fast:
            raise BadInput(
                english("An analysis is either exact or fast."), fix=english("leave out --exact or --fast")
            )

    @property
    def begin_with(self) -> int:
        """How many samples all subjects are measured on first, where there are so many."""
        usual = FAST_FIRST_SAMPLES if self.fast else FIRST_SAMPLES
        return usual if self.first_samples is None else self.first_samples

    @property
    def most_samples(self) -> int | None:
        """How many samples a subject is measured on at most; None for all there are."""
        if not self.fast:
            return self.samples
        most = max(FAST_SAMPLES, self.begin_with)
        return most if self.samples is None else min(most, self.samples)


def find_subjects(
    quantized: QuantizedModel,
    kinds: Sequence[SubjectKind],
    *,
    patterns: Sequence[str] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
) -> tuple[SwitchedSubject, ...]:
    """All subjects of some kinds, each kind in execution order.

    A node is quantized by the quantizers on its inputs, whoever else reads those. Groups come in addition, whether
    or not their kind is asked for.

    Args:
        quantized: The model.
        kinds: Which kinds.
        patterns: Only subjects that one of these matches; see `group_subject`.
        groups: Names of groups, each with its patterns.

    Raises:
        BadInput: There is nothing to switch, or a pattern matches nothing.
    """
    switches = Switches(quantized)
    labels = {each.name: switches.labels_of(each) for each in quantized.quantizers}
    chosen = switches.matching(patterns)
    found: list[SwitchedSubject] = []
    for kind in dict.fromkeys(kinds):
        for subject in _subjects(quantized, switches, kind):
            called = {subject.node} if kind == "node" else labels[subject.name]
            if not patterns or called & chosen:
                found.append(subject)
    found += [group_subject(quantized, name, members) for name, members in (groups or {}).items()]
    if found:
        return tuple(found)
    if not quantized.quantizers:
        raise BadInput(
            english("{path} has no quantizers, so there is nothing to switch.", path=quantized.float_model.path),
            fix=english("give a quantized model, or quantize it first with 'roundoff quantize'"),
        )
    raise BadInput(
        english(
            "Nothing of the kind {kinds} is quantized{which}.",
            kinds=" or ".join(kinds),
            which=english(" among these nodes") if patterns else "",
        ),
        fix=english(
            "choose among these quantizers: {quantizers}",
            quantizers=some([each.name for each in quantized.quantizers], MOST_NAMED),
        ),
    )


def group_subject(quantized: QuantizedModel, name: str, patterns: Sequence[str]) -> SwitchedSubject:
    """Quantizers switched together.

    Args:
        quantized: The model.
        name: What to call the group.
        patterns: Names or globs of nodes (the quantizers on their inputs are meant), tensors or quantizers. A
            pattern that is exactly a name means only that; else ``*`` stands for any characters, ``?`` for one.

    Raises:
        BadInput: A pattern matches nothing, or nothing that is quantized.
    """
    switches = Switches(quantized)
    members = switches.matching(patterns)
    names = tuple(each.name for each in quantized.quantizers if members & switches.labels_of(each))
    return SwitchedSubject(name, "group", names)


def switched_off(quantizers: Iterable[Quantizer], subject: SwitchedSubject) -> tuple[Quantizer, ...]:
    """All quantizers but those of a subject."""
    off = frozenset(subject.quantizers)
    return tuple(each for each in quantizers if each.name not in off)


def _subjects(quantized: QuantizedModel, switches: Switches, kind: SubjectKind) -> Iterator[SwitchedSubject]:
    """All subjects of a kind, in execution order."""
    operations = switches.op_types
    if kind == "node":
        for node in switches.nodes:
            yield SwitchedSubject(node, "node", switches.on_inputs(node), node, operations[node])
        return
    for each in quantized.quantizers:
        if each.kind == kind:
            reader = each.consumers[0].node if each.consumers else ""
            yield SwitchedSubject(each.name, kind, (each.name,), reader, operations.get(reader, ""), each.tensor)
