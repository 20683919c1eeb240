"""What a configuration asks for that has no meaning here, or cannot be done; said, never passed over."""

from collections.abc import Iterator
from dataclasses import dataclass

from roundoff.vendors.pulsar2.config.documents import Place, spelled
from roundoff.vendors.pulsar2.config.enums import ColorSpace, TargetHardware
from roundoff.vendors.pulsar2.config.fields import message_fields
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.config.writing import to_document

__all__ = ["NotApplicable", "not_applicable"]

_COMPILER = "concerns the compiler of the chip, which is not part of roundoff"
_TRAINING = "this fine-tuning is not offered; enable_adaround is"

_WHY: dict[str, str] = {
    "npu_mode": "concerns the compiler of the chip; quantization does not depend on it",
    "output_name": "no compiled model is written; quant/quant_axmodel.onnx is the result",
    "work_dir": "intermediate files are kept in output_dir",
    "onnx_opt.enable_onnxsim": "the model is prepared by roundoff's own steps, and no simplifier is called",
    "onnx_opt.disable_transformation_check": "every transformation of the model is checked",
    "onnx_opt.save_tensors_data": "memory is bounded anyway: tensors are read one at a time",
    "quant.refine_weight_threshold": "what it does is not published, so weights are not refined",
    "quant.disable_auto_refine_scale": "scales are never adjusted afterwards, so there is nothing to turn off",
    "quant.transformer_opt_level": "rewrites of transformers for the chip are not published and not done",
    "quant.ln_scale_data_type": "scales of LayerNormalization stay in float",
    "quant.enable_easy_quant": "the search of scales by EasyQuant is not offered; try calibration_method MSE",
    "quant.enable_brecq": _TRAINING,
    "quant.enable_lsq": _TRAINING,
    "quant.finetune_epochs": "rounding is solved for, not trained, so it has no epochs",
    "quant.finetune_block_size": "rounding is solved for layer by layer",
    "quant.finetune_batch_size": "rounding is solved for over all calibration data at once",
    "quant.finetune_lr": "rounding is solved for, not trained, so it has no learning rate",
    "quant.device": "everything runs on the CPU",
}
_HARDWARE = "the numeric rules here are those of AX650, the only ones that were ever measured in public"


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """One setting that changes nothing here.

    Attributes:
        field: Its name, with dots and numbers.
        value: What was asked for.
        why: Why it changes nothing.
    """

    field: str
    value: object
    why: str


def not_applicable(config: BuildConfig) -> tuple[NotApplicable, ...]:
    """Every setting that differs from its default and changes nothing here, in the order of the format."""
    return tuple(_all(config))


def _all(config: BuildConfig) -> Iterator[NotApplicable]:
    if config.target_hardware is not TargetHardware.AX650:
        yield NotApplicable("target_hardware", config.target_hardware.name, _HARDWARE)
    for place, value in _given(config, ()):
        why = _WHY.get(spelled(place))
        if why is not None:
            yield NotApplicable(spelled(place), value, why)
    for index, processor in enumerate(config.input_processors):
        if processor.src_extra_shapes:
            shapes = [list(each.shape) for each in processor.src_extra_shapes]
            yield NotApplicable(f"input_processors[{index}].src_extra_shapes", shapes, _COMPILER)
        if processor.src_format is ColorSpace.RAW:
            why = "demosaicing of raw sensor data is not done; the input is taken as it comes"
            yield NotApplicable(f"input_processors[{index}].src_format", "RAW", why)
    for index, each in enumerate(config.quant_op_processors):
        why = "operators of the chip's own quantized graph are not part of roundoff; use op_processors"
        yield NotApplicable(f"quant_op_processors[{index}]", f"{each.op_name}: {each.attrs}", why)
    for place, value in _given(config.compiler, ("compiler",)):
        yield NotApplicable(spelled(place), value, _COMPILER)


def _given(message: object, place: Place) -> Iterator[tuple[Place, object]]:
    """The settings of a message, and of messages in it, that are not at their defaults; lists as a whole."""
    written = to_document(message)
    for name, field in message_fields(type(message)).items():
        if name not in written:
            continue
        if field.is_message and not field.repeated:
            if place or name != "compiler":
                yield from _given(getattr(message, name), (*place, name))
        else:
            yield (*place, name), written[name]
