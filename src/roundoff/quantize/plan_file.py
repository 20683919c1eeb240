"""plan.json: what was asked, what was decided and every scale, to be read by people, audits and later runs."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.files import write_text
from roundoff.core.plan import PlannedQuantizer, QuantPlan
from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec
from roundoff.core.target import Arithmetic
from roundoff.core.untrusted import read_json
from roundoff.errors import BadInput
from roundoff.graph.insertion import deploy_model, fake_quant_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.save import save_model
from roundoff.messages.message import Message, english
from roundoff.quantize.parameters import QuantNumbers, planned_with

PLAN_NAME = "plan.json"
PLAN_SCHEMA = 1
CORRECTED = "corrected"
"""Under this name a plan has the model whose codes are not those that its scales give."""

_MOST_BITS = 64


@dataclass(frozen=True, slots=True)
class SavedNumbers:
    """Scale and zero point of one quantizer; lists of one number when one serves the whole tensor."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A quantization that can be told again without the data.

    Attributes:
        schema: Version of this layout.
        roundoff: Version that wrote it.
        model: The float model, as the user gave it.
        model_sha256: Its hash.
        method: Calibration method of the activations.
        samples: How many samples were observed.
        arithmetic: How the target's integer units compute.
        plan: What was asked, and what became of it.
        numbers: Scale and zero point of each quantizer of the plan, by its name.
        files: The models written, by what they are.
        notes: What the user was told.
    """

    schema: int
    roundoff: str
    model: str
    model_sha256: str
    method: str
    samples: int
    arithmetic: Arithmetic
    plan: QuantPlan
    numbers: dict[str, SavedNumbers]
    files: dict[str, str]
    notes: tuple[Message, ...]

    def quantizers(self) -> tuple[Quantizer, ...]:
        """The quantizers, as they were used."""
        return tuple(
            planned_with(planned, _params(self.numbers[planned.name], whole=planned.spec.axis is None))
            for planned in self.plan.quantizers
        )


def saved_numbers(numbers: QuantNumbers) -> dict[str, SavedNumbers]:
    """Scales and zero points as they are stored; float32 values survive the way through JSON."""
    return {
        quantizer.name: SavedNumbers(
            tuple(map(float, np.atleast_1d(quantizer.params.scale))),
            tuple(map(int, np.atleast_1d(quantizer.params.zero_point))),
        )
        for quantizer in numbers.quantizers
    }


def _params(saved: SavedNumbers, *, whole: bool) -> QuantParams:
    scale, zero_point = np.array(saved.scale, dtype=np.float32), np.array(saved.zero_point, dtype=np.int64)
    return QuantParams(scale.reshape(()), zero_point.reshape(())) if whole else QuantParams(scale, zero_point)


def plan_json(saved: SavedPlan) -> str:
    """The text of a plan.json."""
    from pydantic import RootModel

    content = RootModel[SavedPlan](saved).model_dump(mode="json")
    # A set has another order in each process; the same plan is to be the same bytes.
    arithmetic = content["arithmetic"]
    for name in ("tables", "in_float", "narrow"):
        arithmetic[name].sort()
    # What few chips have is told of those alone.
    few = {"in_float", "narrow", *(() if arithmetic["narrow"] else ("narrow_bits",))}
    content["arithmetic"] = {
        name: value for name, value in arithmetic.items() if name not in few or (value and name != "narrow_bits")
    }
    for each in content["plan"]["quantizers"]:
        if each["range_limit"] is None:
            del each["range_limit"]
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True)
class PlanOrigin:
    """What a quantized model was made of.

    Attributes:
        model: The float model, as the user gave it.
        model_sha256: Its hash.
        prefix: How the names of files start.
        arithmetic: How the hardware computes.
        samples: Samples that were observed.
        version: Of roundoff.
    """

    model: str
    model_sha256: str
    prefix: str
    arithmetic: Arithmetic
    samples: int
    version: str


def write_quantized(  # noqa: PLR0913 - what is written, and what the plan tells of it
    folder: Path,
    quantized: QuantizedModel,
    origin: PlanOrigin,
    *,
    plan: QuantPlan | None = None,
    method: str = "",
    notes: Sequence[Message] = (),
    float_too: bool = True,
) -> SavedPlan:
    """Write a quantized model with its plan, which comes last.

    Args:
        folder: Where they go.
        quantized: The network.
        origin: What it was made of.
        plan: What was decided for each node; without one only the quantizers are told.
        method: Calibration method of its ranges.
        notes: What the user was told.
        float_too: Whether scales belong to another float model than the user's, so that it goes with them.
    """
    model, quantizers = quantized.float_model, quantized.quantizers
    names = ("fake_quant", "deploy", *(("float",) if float_too else ()))
    files = {name: f"{origin.prefix}_{name}_model.onnx" for name in names}
    save_model(fake_quant_model(model, quantizers), folder / files["fake_quant"], replace=True)
    save_model(deploy_model(model, quantizers), folder / files["deploy"], replace=True)
    name, digest = origin.model, origin.model_sha256
    if float_too:
        save_model(model, folder / files["float"], replace=True)
        with (folder / files["float"]).open("rb") as file:
            name, digest = files["float"], hashlib.file_digest(file, "sha256").hexdigest()
    if plan is None or any(each.codes is not None for each in quantizers):
        # Codes that are not those of the scales are in the models alone.
        files[CORRECTED] = files["fake_quant"]
    saved = SavedPlan(
        schema=PLAN_SCHEMA,
        roundoff=origin.version,
        model=name,
        model_sha256=digest,
        method=method or "as given",
        samples=origin.samples,
        arithmetic=origin.arithmetic,
        plan=plan or QuantPlan("as given", tuple(map(_planned, quantizers)), ()),
        numbers=saved_numbers(QuantNumbers(quantizers, ())),
        files=files,
        notes=tuple(notes),
    )
    write_text(folder / PLAN_NAME, plan_json(saved))
    return saved


def _planned(quantizer: Quantizer) -> PlannedQuantizer:
    return PlannedQuantizer(
        name=quantizer.name,
        tensor=quantizer.tensor,
        kind=quantizer.kind,
        spec=quantizer.spec,
        consumers=quantizer.consumers,
        output=quantizer.output,
        after=quantizer.after,
    )


def load_plan(path: Path) -> SavedPlan:
    """Read a plan.json, or that of a folder.

    Raises:
        BadInput: It is missing, damaged, of another version, or contradicts itself.
    """
    from pydantic import TypeAdapter, ValidationError

    file = path / PLAN_NAME if path.is_dir() else path
    again = english("give a folder that roundoff quantize wrote, or write it again")
    try:
        content = read_json(file, what=english("The plan"), fix=again)
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != PLAN_SCHEMA:
            raise BadInput(
                english(
                    "{file} has schema {schema!r}; this version reads {plan_schema}.",
                    file=file,
                    schema=schema,
                    plan_schema=PLAN_SCHEMA,
                ),
                fix=again,
            )
        saved: SavedPlan = TypeAdapter(SavedPlan).validate_python(content)
    except (ValueError, ValidationError, RecursionError) as error:
        first = str(error).splitlines()[0]
        raise BadInput(english("{file} is not a plan: {first}", file=file, first=first), fix=again) from error
    for planned in saved.plan.quantizers:
        numbers = saved.numbers.get(planned.name)
        if numbers is None or not _sound(numbers, planned.spec):
            what = english(
                "{file} has no usable scale and zero point for the quantizer {name!r}.",
                file=file,
                name=planned.name,
            )
            raise BadInput(what, fix=again)
    return saved


def _sound(numbers: SavedNumbers, spec: QuantSpec) -> bool:
    if not 1 <= spec.bits <= _MOST_BITS:
        return False
    same = len(numbers.scale) == len(numbers.zero_point) and (spec.axis is not None or len(numbers.scale) == 1)
    codes = all(spec.code_min <= zero_point <= spec.code_max for zero_point in numbers.zero_point)
    return same and codes and all(math.isfinite(scale) and scale > 0 for scale in numbers.scale)
