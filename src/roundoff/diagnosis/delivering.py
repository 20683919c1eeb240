"""Writing a repaired model: with its quantizers, with integers in it, and the plan by which it is read again."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundoff.core.files import write_text
from roundoff.core.quant_plan import PlannedQuantizer, QuantPlan
from roundoff.core.quantizer import Quantizer
from roundoff.core.target import Arithmetic
from roundoff.graph.insertion import deploy_model, fake_quant_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.saving import save_model
from roundoff.quantize.parameters import Numbers
from roundoff.quantize.plan_file import CORRECTED, PLAN_NAME, PLAN_SCHEMA, SavedPlan, plan_json, saved_numbers

__all__ = ["Origin", "write_repaired"]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a repaired model was made of.

    Attributes:
        model: The float model, as the user gave it.
        model_sha256: Its hash.
        prefix: How the names of files start.
        arithmetic: How the hardware computes.
        samples: Samples that were looked at.
        version: Of roundoff.
    """

    model: str
    model_sha256: str
    prefix: str
    arithmetic: Arithmetic
    samples: int
    version: str


def write_repaired(
    folder: Path, quantized: QuantizedModel, origin: Origin, *, plan: QuantPlan | None = None, method: str = ""
) -> dict[str, str]:
    """Write models and plan; the plan comes last.

    Args:
        folder: Where they go.
        quantized: The repaired network.
        origin: What it was made of.
        plan: What was decided for each node; without one only the quantizers are told.
        method: Calibration method of its ranges.

    Returns:
        File names, by what they are.
    """
    model, quantizers = quantized.float_model, quantized.quantizers
    files = {name: f"{origin.prefix}_{name}_model.onnx" for name in ("fake_quant", "deploy", "float")}
    save_model(fake_quant_model(model, quantizers), folder / files["fake_quant"], replace=True)
    save_model(deploy_model(model, quantizers), folder / files["deploy"], replace=True)
    # Scales belong to the float model as it was prepared or transformed, so that it goes with them.
    save_model(model, folder / files["float"], replace=True)
    with (folder / files["float"]).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    saved = SavedPlan(
        schema=PLAN_SCHEMA,
        roundoff=origin.version,
        model=files["float"],
        model_sha256=digest,
        method=method or "as given",
        samples=origin.samples,
        arithmetic=origin.arithmetic,
        plan=plan or QuantPlan("as given", tuple(_planned(quantizers)), ()),
        numbers=saved_numbers(Numbers(quantizers, ())),
        files={**files, CORRECTED: files["fake_quant"]},
        notes=(f"repaired by roundoff diagnose, from {origin.model}",),
    )
    write_text(folder / PLAN_NAME, plan_json(saved))
    return {**files, "plan": PLAN_NAME}


def _planned(quantizers: Sequence[Quantizer]) -> list[PlannedQuantizer]:
    return [
        PlannedQuantizer(
            name=each.name,
            tensor=each.tensor,
            kind=each.kind,
            spec=each.spec,
            consumers=each.consumers,
            output=each.output,
            after=each.after,
        )
        for each in quantizers
    ]
