"""What each lever brings to MobileNetV1-0.25 with one scale for each weight, on pictures that decided nothing.

Leaves with 1 when equalization with bias correction does not come within one point of float.
"""

import sys

from benchmarks.accuracy import Arrays, Task, accuracy, mobilenet
from roundoff.core.plan import Step
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model, load_model
from roundoff.graph.preparation.steps import prepare
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.steps import StepContext, apply_correction, apply_transform
from roundoff.quantize.targets.files import load_target

TARGET = "generic-int8-per-tensor"
TRANSFORMS: tuple[tuple[Step, ...], ...] = (
    (),
    (Step("equalize", (("clip", "observed"),)),),
    (Step("equalize"),),
    (Step("equalize", (("power_of_two", True),)),),
)
CORRECTIONS = ((), ("bias_correct",), ("round_weights",), ("round_weights", "bias_correct"))
ALLOWED_DROP = 0.01


def transformed(model: Model, steps: tuple[Step, ...], context: StepContext) -> Model:
    for step in steps:
        model = apply_transform(step, model, context).model
    return model


def measured(task: Task, quantized: QuantizedModel, names: tuple[str, ...], context: StepContext) -> float:
    for name in names:
        quantized = apply_correction(Step(name), quantized, context).model
    return accuracy(task, switch_on(quantized.float_model, quantized.quantizers))


def main() -> int:
    task = mobilenet()
    if task is None:
        print("MobileNetV1-0.25 and its pictures do not lie beside the repository: nothing measured")
        return 0
    samples = Arrays(task.input, task.calibration)
    context = StepContext(load_target(TARGET), samples)
    prepared = prepare(load_model(task.path)).model
    reference = accuracy(task, prepared)
    print(f"{task.name}: {len(task.labels)} images, {TARGET}, float {reference:.2%}")
    best = 0.0
    for steps in TRANSFORMS:
        model = transformed(prepared, steps, context)
        quantized = quantize_model(model, samples, QuantizeSettings(context.target)).quantized
        name = ", ".join(f"{step.name} {dict(step.options) or ''}".strip() for step in steps) or "none"
        shares = {names: measured(task, quantized, names, context) for names in CORRECTIONS}
        print(
            f"  {name}: " + ", ".join(f"{'+'.join(key) or 'nearest'} {share:.2%}" for key, share in shares.items())
        )
        if steps == (Step("equalize"),):
            best = shares[("bias_correct",)]
    return 0 if best >= reference - ALLOWED_DROP else 1


if __name__ == "__main__":
    sys.exit(main())
