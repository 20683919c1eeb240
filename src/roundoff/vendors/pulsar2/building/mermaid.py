"""The precision analysis as a Mermaid flow chart: tensors are nodes, layers are edges."""

from collections.abc import Iterator, Sequence

from roundoff.vendors.pulsar2.building.precision import Analysis
from roundoff.vendors.pulsar2.layers.entries import Frontend
from roundoff.vendors.pulsar2.tables import PrecisionRow
from roundoff.vendors.pulsar2.tables.precision import figure

__all__ = ["mermaid_chart"]

# The vendor publishes the first colour alone; the limits are its two thresholds and one between.
_COLOURS = (
    (0.999, "good", "#2efe08"),
    (0.99, "fair", "#c8fe08"),
    (0.98, "poor", "#fe9a08"),
    (-2.0, "bad", "#fe2e08"),
)


def mermaid_chart(analysis: Analysis, frontend: Frontend) -> str:
    """The text of a .mmd file.

    Args:
        analysis: What was measured.
        frontend: The graph.
    """
    return "\n".join(_lines(analysis, frontend)) + "\n"


def _lines(analysis: Analysis, frontend: Frontend) -> Iterator[str]:
    scored = {row.tensor: row for row in analysis.rows}
    inner = frozenset(name for unit in frontend.units for name in unit.inner)
    edges = list(_edges(frontend, inner))
    names = list(dict.fromkeys(name for start, end, _ in edges for name in (start, end)))
    numbers = {name: place for place, name in enumerate(names)}
    yield "flowchart TD"
    yield f'    legend["<u>{analysis.method.name} {analysis.mode.name}</u>"]'
    for name in names:
        row = scored.get(name)
        colour = "" if row is None or row.cosine is None else f":::{_class(row.cosine)}"
        yield f'    t{numbers[name]}["{_quoted(_label(name, row))}"]{colour}'
    for start, end, label in edges:
        yield f'    t{numbers[start]} -->|"{_quoted(label)}"| t{numbers[end]}'
    used = {_class(row.cosine) for row in analysis.rows if row.cosine is not None and row.tensor in numbers}
    for _, name, colour in _COLOURS:
        if name in used:
            yield f"    classDef {name} fill:{colour}"


def _edges(frontend: Frontend, inner: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """From what each layer reads to what it writes."""
    for unit in frontend.units:
        if not any(frontend.view.computes_values(node) for node in unit.nodes):
            continue
        label = f"{frontend.type_of(unit)},{frontend.names.original(unit.first.name)}"
        read = dict.fromkeys(
            name
            for node in unit.nodes
            for _, name in frontend.view.operands(node)
            if name not in inner and not frontend.view.is_constant(name)
        )
        for start in read:
            for end in frontend.view.results(unit.last):
                yield start, end, label


def _label(name: str, row: PrecisionRow | None) -> str:
    if row is None:
        return f"{name},None->None,None,None"
    shape = f"({', '.join(map(str, row.shape))})"
    return ",".join((name, shape, f"{row.dtype}->{row.qdtype}", figure(row.cosine), figure(row.mse)))


def _class(cosine: float) -> str:
    return next(name for limit, name, _ in _COLOURS if cosine >= limit)


def _quoted(text: str) -> str:
    """A text between quotes: what Mermaid would read as markup is spelled as entities."""
    marks: Sequence[tuple[str, str]] = (
        ("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " "), ("\r", " "), ("`", "#96;"),
    )  # fmt: skip
    text = text.replace("->", "\0")
    for mark, entity in marks:
        text = text.replace(mark, entity)
    return text.replace("\0", "->")
