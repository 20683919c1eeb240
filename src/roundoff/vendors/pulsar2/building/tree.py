"""The folder that a build leaves behind, laid out as the vendor's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundoff.core.files import write_text
from roundoff.core.names import shown
from roundoff.core.target import Arithmetic
from roundoff.graph.deferred import LARGEST_MESSAGE_BYTES, fill, pending_bytes
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.interface import outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.saving import save_model
from roundoff.graph.tap import tap
from roundoff.report.documents import json_text
from roundoff.runtime.feeds import Samples
from roundoff.runtime.runner import read_feed
from roundoff.runtime.session import open_session
from roundoff.vendors.pulsar2.building.dumps import Dumping, write_test_data
from roundoff.vendors.pulsar2.building.mermaid import mermaid_chart
from roundoff.vendors.pulsar2.building.precision import Analysis
from roundoff.vendors.pulsar2.config.enums import PrecisionAnalysisMethod, PrecisionAnalysisMode
from roundoff.vendors.pulsar2.config.settling import Settled
from roundoff.vendors.pulsar2.deployed import deployed_model
from roundoff.vendors.pulsar2.layers.entries import Frontend
from roundoff.vendors.pulsar2.tables import precision_table

__all__ = ["AXMODEL", "CHART", "CONTEXT", "DATASET", "DEPLOYED", "OPTIMIZED", "TABLE", "TEST_DATA", "Tree"]

CONTEXT = "build_context.json"
"""The record of a build, by which its folder is known."""

OPTIMIZED, OPTIMIZED_QUANTIZED = "frontend/optimized.onnx", "frontend/optimized_quant_axmodel.onnx"
AXMODEL, AXMODEL_JSON = "quant/quant_axmodel.onnx", "quant/quant_axmodel.json"
DEPLOYED = "quant/deployed_axmodel.onnx"
DATASET, DEBUG, TEST_DATA = "quant/dataset", "quant/debug", "quant/debug/test_data_set_0"
TABLE, CHART = "quant/debug/precision_analysis_table.txt", "quant/debug/precision_analysis.mmd"


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder that is being filled.

    Attributes:
        folder: Where files are written now.
        name: What the user calls the folder.
    """

    folder: Path
    name: str

    def shown(self, path: str) -> str:
        """A path in it, as the user will find it."""
        return f"{self.name}/{path}"

    def named(self, path: Path) -> str:
        """Any path, as the user will find it."""
        inside = path.is_relative_to(self.folder)
        return self.shown(path.relative_to(self.folder).as_posix()) if inside else shown(path)

    def write_quantized(self, quantized: QuantizedModel, document: dict[str, Any], *, frontend_too: bool) -> None:
        """Write the quantized model and all its scales."""
        model = fake_quant_model(quantized.float_model, quantized.quantizers)
        save_model(model, self.folder / AXMODEL)
        if frontend_too:
            again = fake_quant_model(quantized.float_model, quantized.quantizers)
            save_model(again, self.folder / OPTIMIZED_QUANTIZED)
        write_text(self.folder / AXMODEL_JSON, json_text(document))

    def write_deployed(self, quantized: QuantizedModel, settled: Settled) -> tuple[str, ...]:
        """Write the quantized model with the processing of its inputs and outputs; says what was put in.

        Where there is none, or the model is too large to be changed in memory, nothing is written.
        """
        deferred = fake_quant_model(quantized.float_model, quantized.quantizers)
        if pending_bytes(deferred) > LARGEST_MESSAGE_BYTES:
            return ("the model is too large to put the processing of inputs and outputs into it",)
        plain = fill(deferred)
        model, notes = deployed_model(plain, settled)
        if model is not plain:
            save_model(model, self.folder / DEPLOYED)
        return notes

    def write_test_data(self, quantized: QuantizedModel, samples: Samples) -> None:
        """Write the first sample and what the float model makes of it."""
        model = quantized.float_model
        feed, names = read_feed(model, samples, 0), outputs(model)
        found = open_session(model, outputs=tap(model, names)).run(feed, sample=samples.names[0])
        arrays = {name: array for name, array in zip(names, found, strict=True) if hasattr(array, "dtype")}
        write_test_data(self.folder / TEST_DATA, feed, arrays)

    def write_analysis(
        self,
        analysis: Analysis,
        frontend: Frontend,
        *,
        quantized: QuantizedModel,
        samples: Samples,
        arithmetic: Arithmetic,
    ) -> None:
        """Write the table in full width, the chart, and what was compared."""
        method, mode = analysis.method.name, analysis.mode.name
        write_text(self.folder / TABLE, precision_table(analysis.rows, method=method, mode=mode) + "\n")
        write_text(self.folder / CHART, mermaid_chart(analysis, frontend))
        Dumping(
            quantized,
            samples,
            end_to_end=analysis.method is PrecisionAnalysisMethod.EndToEnd,
            arithmetic=arithmetic if analysis.mode is PrecisionAnalysisMode.NPUBackend else None,
            tensors=frozenset(row.tensor for row in analysis.rows),
        ).write(self.folder / DEBUG)
