"""Quantizers while they are found, and what the tensors of a quantized graph stand for in the float one."""

from dataclasses import dataclass, field

from roundoff.core.quantizers import Consumer
from roundoff.graph.reading.points import Point

__all__ = ["CodeWire", "Stage", "StageList", "Wire"]


@dataclass(slots=True, eq=False)
class Stage:
    """A quantizer under construction.

    Attributes:
        name: What it will be called.
        tensor: What it quantizes, in the float graph.
        point: How.
        before: The one whose result it quantizes again.
        consumers: The node inputs that see its result.
        output: Whether its result leaves the network.
        codes: The constant that holds the codes of its tensor, which then has its values from them.
    """

    name: str
    tensor: str
    point: Point
    before: "Stage | None" = None
    consumers: list[Consumer] = field(default_factory=list)
    output: bool = False
    codes: str = ""


@dataclass(frozen=True, slots=True)
class Wire:
    """Float values: those of a tensor of the float graph, quantized by a stage (and those before it) if any."""

    tensor: str
    stage: Stage | None = None


@dataclass(slots=True, eq=False)
class CodeWire:
    """Integers that stand for values.

    Attributes:
        source: The values before they were quantized.
        point: How they were.
        name: Name for the quantizer that is made when the codes are used.
        exact: The values are on the codes' grid already: quantizing them changes nothing.
        stage: The quantizer, once it is made.
    """

    source: Wire
    point: Point
    name: str
    exact: bool = False
    stage: Stage | None = None


class StageList(list[Stage]):
    """All quantizers found so far, in the order in which they are first used."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()
        self._of_codes: dict[str, list[Stage]] = {}

    def add(self, name: str, tensor: str, point: Point, *, codes: str = "") -> Stage:
        """Begin a quantizer, under a name that is free."""
        free, count = name, 1
        while free in self._names:
            count += 1
            free = f"{name}_{count}"
        self._names.add(free)
        stage = Stage(free, tensor, point, codes=codes)
        self.append(stage)
        if codes:
            self._of_codes.setdefault(codes, []).append(stage)
        return stage

    def of_codes(self, codes: str, point: Point) -> Stage | None:
        """The quantizer of a constant of which only the codes are there, if it is known already."""
        return next((stage for stage in self._of_codes.get(codes, ()) if stage.point.same(point)), None)
