"""What counts for which input, and what is asked for in vain."""

import pytest

from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput
from roundoff.vendors.pulsar2.config.checks import not_applicable, resolve_config
from roundoff.vendors.pulsar2.config.schema import (
    BuildConfig,
    ColorSpace,
    CompilerConfig,
    DataType,
    InputProcessor,
    InputQuantConfig,
    NpuMode,
    OnnxOpt,
    OpProcessor,
    OutputProcessor,
    QuantConfig,
    Shape,
    TargetHardware,
)

SPECS = (InputSpec("x", "float32", (1, 3, 8, 8)), InputSpec("y", "float32", (1, 3, 8, 8)))


def test_an_entry_of_its_own_counts_more_than_default() -> None:
    config = BuildConfig(
        quant=QuantConfig(
            input_configs=(
                InputQuantConfig("DEFAULT", "all.tar", calibration_mean=(1.0,), calibration_std=(2.0,)),
                InputQuantConfig("y", "y.tar"),
            )
        ),
        input_processors=(InputProcessor("x", src_dtype=DataType.U8, mean=(5.0,)),),
        output_processors=(OutputProcessor("DEFAULT", dst_perm=(1, 0)),),
    )
    settled = resolve_config(config, SPECS, ["out"])
    x, y = settled.inputs["x"], settled.inputs["y"]
    sets = [each.calibration.calibration_dataset for each in (x, y) if each.calibration is not None]
    assert sets == ["all.tar", "y.tar"]
    assert (x.processor.mean, x.processor.std) == ((5.0,), (2.0,))
    assert (y.processor.mean, y.processor.src_dtype) == ((), DataType.FP32)
    assert settled.outputs["out"] == OutputProcessor("out", dst_perm=(1, 0))
    (note,) = settled.notes
    assert note.startswith(
        "no input processing is configured for y; default: deployed as the model is: FP32, NCHW"
    )


def test_gaps_are_announced() -> None:
    notes = resolve_config(BuildConfig(), SPECS, ["out"]).notes
    assert [note.split(";")[0] for note in notes] == [
        "no calibration data is configured for x, y",
        "no input processing is configured for x, y",
        "no output processing is configured for out",
    ]


def test_entries_for_what_the_model_does_not_have_are_refused_together() -> None:
    config = BuildConfig(
        quant=QuantConfig(input_configs=(InputQuantConfig("xx", "a"),)),
        input_processors=(InputProcessor("z"),),
        output_processors=(OutputProcessor("x"),),
    )
    with pytest.raises(BadInput) as caught:
        resolve_config(config, SPECS, ["out"])
    assert caught.value.what.splitlines() == [
        "The configuration has 3 errors:",
        "  quant.input_configs[0].tensor_name: the model has no input 'xx'; did you mean 'x'?",
        "  input_processors[0].tensor_name: the model has no input 'z'; choose one of: x, y",
        "  output_processors[0].tensor_name: the model has no output 'x'; choose one of: out",
    ]


def test_defaults_ask_for_nothing_in_vain() -> None:
    assert not_applicable(BuildConfig()) == ()


def test_what_changes_nothing_is_listed_with_its_reason() -> None:
    config = BuildConfig(
        target_hardware=TargetHardware.AX615,
        npu_mode=NpuMode.NPU2,
        onnx_opt=OnnxOpt(enable_onnxsim=True, model_check=True),
        quant=QuantConfig(enable_lsq=True, device="cuda:0", enable_smooth_quant=True),
        input_processors=(InputProcessor("x", src_format=ColorSpace.RAW, src_extra_shapes=(Shape((1, 2)),)),),
        quant_op_processors=(OpProcessor("n", {"axis": 1}),),
        compiler=CompilerConfig(check=2, sub_configs=(CompilerConfig(start_tensor_names=("a",)),)),
    )
    found = {each.field: each.value for each in not_applicable(config)}
    assert found == {
        "target_hardware": "AX615",
        "npu_mode": "NPU2",
        "onnx_opt.enable_onnxsim": True,
        "quant.enable_lsq": True,
        "quant.device": "cuda:0",
        "input_processors[0].src_extra_shapes": [[1, 2]],
        "input_processors[0].src_format": "RAW",
        "quant_op_processors[0]": "n: {'axis': 1}",
        "compiler.check": 2,
        "compiler.sub_configs": [{"start_tensor_names": ["a"]}],
    }
    assert all(each.why for each in not_applicable(config))
