"""A document with every part, for pages and renderers."""

from dataclasses import replace

from roundoff.core.document import SCHEMA, Environment, InputFile, RunDocument
from roundoff.core.tensors import NodeInfo, Topology
from roundoff.messages.message import verbatim
from tests import inspections
from tests.report.curves import curves_of, sweep_of
from tests.report.diffs import diff_of
from tests.search import test_tuning
from tests.studies.audit import test_audit
from tests.studies.compare import test_page as test_reports
from tests.studies.layers import test_layers

HOSTILE = "</script><img src=x onerror=alert(1)> \"'`${x}` =1+1 卷积 😀 " + "n" * 300


def empty_document(**found: object) -> RunDocument:
    """A document that says nothing but where it came from."""
    host = Environment("0.1", "3.11", {"numpy": "2.0"}, "linux", verbatim("plain"), 1.5)
    document = RunDocument(
        schema=SCHEMA,
        command=("roundoff", "layers", HOSTILE),
        inputs=(InputFile("model", HOSTILE, 12, "0" * 64, "content"),),
        environment=host,
    )
    return replace(document, **found)  # type: ignore[arg-type]


def chain(*names: str) -> Topology:
    """A network in which each node reads what the one before writes."""
    nodes = tuple(NodeInfo(name, "Conv", (f"t{at}",), (f"t{at + 1}",)) for at, name in enumerate(names))
    return Topology(nodes, ("t0",), (f"t{len(names)}",))


def full_document() -> RunDocument:
    """A document with every part that tests elsewhere have an example of."""
    report = replace(test_layers.REPORT, rows=(*test_layers.REPORT.rows, test_layers.row(9, HOSTILE)))
    return empty_document(
        network=chain("a/conv", "b/conv", f"node of {HOSTILE}"),
        layers=report,
        comparison=test_reports.make_comparison(
            test_reports.make_row(0, HOSTILE, 0.5, role="introduces"), test_reports.make_row(1, "fine", 1.0)
        ),
        distributions=inspections.distribution_report("conv1", HOSTILE),
        channels=inspections.channel_report("conv1", HOSTILE),
        outliers=inspections.outlier_report("conv1", HOSTILE),
        worst_samples=inspections.worst_samples(),
        accumulation=curves_of(),
        partial=sweep_of(),
        tuning=test_tuning.FOUND,
        diff=diff_of(HOSTILE, "fine", gate=True),
        audit=test_audit.AUDIT,
    )


def large_document(nodes: int) -> RunDocument:
    """A document with this many layers."""
    names = [f"stage{at // 50}/block{at // 10}/conv{at}" for at in range(nodes)]
    rows = tuple(replace(test_layers.row(at, f"t{at + 1}"), node=name) for at, name in enumerate(names))
    return empty_document(network=chain(*names), layers=replace(test_layers.REPORT, rows=rows))
