"""Configurations from files: formats, errors, overrides."""

import json
from pathlib import Path
from typing import Any

import pytest

from roundoff.errors import BadInput
from roundoff.vendors.pulsar2.config.files import load_config
from roundoff.vendors.pulsar2.config.schema import (
    BuildConfig,
    CalibrationMethod,
    DataType,
    NpuMode,
    TargetHardware,
)
from tests.vendors.pulsar2.published import published

PUBLISHED = (
    "cnclip_vision_u16u8.json",
    "depth_anything_v2.json",
    "docs_full_reference.jsonc",
    "edgetam_image_encoder.jsonc",
    "liveportrait_spade_s32_weight.jsonc",
    "qat_quantonnx.json",
    "raft_stereo_percentile.json",
    "satrn_decoder_multi_input.json",
)
RELAXED = """
{
  // a comment with "quotes" and a comma,
  "npu_mode": "NPU2",  # another // one
  /* and
     a third */
  "output_dir": "http://not/a#comment",
  "quant": {
    "layer_configs": [
      {"start_tensor_names": "DEFAULT", "end_tensor_names": ["DEFAULT"], "data_type": "U16",},
    ],
    "refine_weight_threshold": "1e-5",
    "calibrationMethod": 2,
    "precision_analysis": null,
  },
}
"""


EVERY_ERROR = """FILE has 11 errors:
line 2: quantt: unknown key; did you mean 'quant'?
line 3: target_hardware: cannot be 'AX651'; did you mean 'AX650'?
line 5: quant.calibration_method: cannot be 7; choose one of: MinMax, Percentile, MSE, KL
line 6: quant.precision_analysis: takes true or false, not 1
line 7: quant.calibration_size: unknown key; did you mean 'calibration_method'?
line 9: quant.input_configs[0].calibration_dataset: must be given
line 10: quant.layer_configs[2].op_types: takes a list, not 'Conv'
line 12: input_processors: takes a list, not {}
line 8: quant.smooth_quant_threshold: must be from 0 to 1, not 2
line 10: quant.layer_configs[0].op_type: and layer_name select in two ways; make two entries of this one
line 10: quant.layer_configs[1]: selects nothing: give layer_name(s), op_type(s), or start_tensor_names and \
end_tensor_names""".splitlines()


def written(folder: Path, text: str, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, config: Any, *overrides: tuple[str, str | None]) -> str:
    path = written(folder, config if isinstance(config, str) else json.dumps(config, indent=1))
    with pytest.raises(BadInput) as caught:
        load_config(path, overrides)
    return caught.value.what.replace(str(path), "FILE")


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_load(name: str, tmp_path: Path) -> None:
    config = load_config(written(tmp_path, published(f"configs/{name}"), name))
    assert config.quant.input_configs


def test_relaxed_json(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, RELAXED))
    assert config.npu_mode is NpuMode.NPU2
    assert config.output_dir == "http://not/a#comment"
    (layer,) = config.quant.layer_configs
    assert layer.start_tensor_names == layer.end_tensor_names == ("DEFAULT",)
    assert layer.data_type is DataType.U16
    assert (layer.kind, layer.layers, layer.types) == ("subgraph", (), ())
    assert config.quant.refine_weight_threshold == 1e-5
    assert config.quant.calibration_method is CalibrationMethod.MSE
    assert not config.quant.precision_analysis


def test_nothing_is_all_defaults() -> None:
    assert load_config(None) == BuildConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1', "line 1, column 8: the text ends inside what begins with '{' at line 1, column 1"),
        ('{"a" 1}', "line 1, column 6: a ':' is expected behind \"a\", not '1'"),
        ('{"a": 1 "b": 2}', "line 1, column 9: a ',' or a '}' is expected, not '\"b\"'"),
        ("{a: 1}", "line 1, column 2: a key in double quotes is expected, not 'a'"),
        ('{"a":\n 1, "a": 2}', "line 2, column 5: the key 'a' stands twice in one object"),
        ('{"a": nul}', "line 1, column 7: a value is expected, not 'nul'"),
        ('{"a": NaN}', "line 1, column 7: a value is expected, not 'NaN'"),
        ('{"a": 01}', "line 1, column 7: '0' is no part of JSON"),
        ('{"a": "x\n"}', "line 1, column 7: a text does not end in its line"),
        ('{"a": "\\x"}', "line 1, column 7: a text holds an escape that means nothing"),
        ('{"a": 1} 2', "line 1, column 10: nothing may follow the value, but there is '2'"),
        ("[" * 100, "line 1, column 66: values are nested more than 64 deep"),
        ("", "line 1, column 1: a value is expected, not the end of the text"),
        ('{"a": ' + "1" * 500 + "}", "line 1, column 7: a number has absurdly many digits"),
        ("{,}", "line 1, column 2: a key in double quotes is expected, not ','"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, text) == f"FILE, {message}."


def test_all_errors_are_listed_at_once(tmp_path: Path) -> None:
    text = """{
 "quantt": {},
 "target_hardware": "AX651",
 "quant": {
  "calibration_method": 7,
  "precision_analysis": 1,
  "calibration_size": 3,
  "smooth_quant_threshold": 2,
  "input_configs": [{"tensor_name": "x"}],
  "layer_configs": [{"op_type": "Conv", "layer_name": "a"}, {"data_type": "U16"}, {"op_types": "Conv"}]
 },
 "input_processors": {}
}"""
    assert refused(tmp_path, text) == "\n  ".join(EVERY_ERROR)


@pytest.mark.parametrize(
    ("quant", "message"),
    [
        (
            {"refine_weight_threshold": 2e-4},
            "refine_weight_threshold: must be 0, less than 0.0001, or -1, not 0.0002",
        ),
        ({"refine_weight_threshold": -2}, "refine_weight_threshold: must be 0, less than 0.0001, or -1, not -2"),
        ({"smooth_quant_strength": 1e39}, "smooth_quant_strength: takes a finite number of 32 bits, not 1e+39"),
        (
            {"refine_weight_threshold": "nan"},
            "refine_weight_threshold: takes a finite number of 32 bits, not 'nan'",
        ),
        ({"smooth_quant_strength": -0.1}, "smooth_quant_strength: must be from 0 to 1, not -0.1"),
        ({"transformer_opt_level": 3}, "transformer_opt_level: must be from 0 to 2, not 3"),
        ({"check": 2}, "check: must be from 0 to 1, not 2"),
        ({"finetune_epochs": 0}, "finetune_epochs: must be more than 0, not 0"),
        ({"finetune_epochs": 1.5}, "finetune_epochs: takes a whole number of 32 bits, not 1.5"),
        ({"device": "cuda:9"}, "device: must be cpu or cuda:0 to cuda:7, not 'cuda:9'"),
        ({"conv_bias_data_type": "S16"}, "conv_bias_data_type: cannot be 'S16'; choose one of: S32, FP32"),
        (
            {"enable_lsq": True, "enable_adaround": True, "enable_brecq": True},
            "enable_lsq: excludes enable_brecq: at most one of enable_brecq, enable_lsq, enable_adaround can",
        ),
        ({"layer_configs": [{"data_type": "U16"}]}, "layer_configs[0]: selects nothing"),
        (
            {"layer_configs": [{"start_tensor_names": ["a"]}]},
            "layer_configs[0].end_tensor_names: must be given too",
        ),
        ({"layer_configs": [{"layer_names": [""]}]}, "layer_configs[0].layer_names: holds an empty name"),
        ({"layer_configs": [{"op_type": "A", "data_type": "U7"}]}, "layer_configs[0].data_type: cannot be 'U7'"),
    ],
)
def test_impossible_settings_of_quantization(quant: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert f"quant.{message}" in refused(tmp_path, {"quant": quant})


def calibration(**changes: Any) -> dict[str, Any]:
    return {"quant": {"input_configs": [{"tensor_name": "x", "calibration_dataset": "a.tar", **changes}]}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (calibration(calibration_size=0), "calibration_size: must be at least 1, or -1 for all, not 0"),
        (
            calibration(calibration_mean=[1, 2, 3], calibration_std=[1]),
            "calibration_std: has 1 numbers, calibration_mean has 3",
        ),
        (calibration(calibration_std=[1, 0, 1]), "calibration_std: holds a 0, by which nothing can be divided"),
    ],
)
def test_impossible_calibration(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert f"quant.input_configs[0].{message}" in refused(tmp_path, config)


def test_an_input_has_one_entry(tmp_path: Path) -> None:
    entry = {"tensor_name": "x", "calibration_dataset": "a"}
    message = refused(tmp_path, {"quant": {"input_configs": [entry, entry]}})
    assert "quant.input_configs[1]: 'x' has an entry already, number 0; join the two" in message


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (
            {"src_format": "YUV420SP"},
            "csc_mode: cannot be NoCSC for YUV420SP: choose FullRange, LimitedRange or Matrix",
        ),
        (
            {"src_format": "YUYV422", "csc_mode": "FullRange", "tensor_format": "GRAY"},
            "src_format: YUYV422 has three",
        ),
        ({"src_format": "RGBA"}, "src_format: cannot be 'RGBA'"),
        ({"csc_mode": "Matrix"}, "csc_mat: The colour matrix has 0 numbers; give 12"),
        ({"csc_mode": "Matrix", "csc_mat": [1.0] * 11}, "csc_mat: The colour matrix has 11 numbers"),
        (
            {"csc_mode": "Matrix", "csc_mat": [1, 1, 1, -222.9] * 3},
            "csc_mat: The colour matrix is out of its limits",
        ),
        ({"csc_mat": [1.0] * 3}, "csc_mat: must have 12 numbers (3 rows of 4), not 3"),
        ({"mean": [1, 2], "std": [1]}, "std: has 1 numbers, mean has 2"),
        ({"std": [0]}, "std: holds a 0"),
        ({"scale": -1}, "scale: must not be negative, is -1"),
        ({"padding": [1]}, "padding: has 1 numbers; it takes a start and an end for every axis"),
        ({"slicing": [0, -1]}, "slicing: must not hold negative numbers: [0, -1]"),
        ({"padding_mode": "reflect"}, "padding_mode: can be constant only, not 'reflect'"),
        ({"src_dtype": "S64"}, "src_dtype: cannot be 'S64'"),
    ],
)
def test_impossible_processing_of_inputs(processor: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = {"input_processors": [{"tensor_name": "x", **processor}]}
    assert f"input_processors[0].{message}" in refused(tmp_path, config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"input_shapes": "x:1x3;x:2;y;z:0"}, "input_shapes: the input 'x' has two shapes"),
        ({"input_shapes": "x:1x3;x:2;y;z:0"}, "input_shapes: 'y' is not of the form name:1x3x224x224"),
        ({"input_shapes": "x:1x3;x:2;y;z:0"}, "input_shapes: 'z:0' has an axis of size 0"),
        ({"target_hardware": "AX620E", "npu_mode": "NPU3"}, "npu_mode: AX620E has NPU1, NPU2, not NPU3"),
        (
            {"output_processors": [{"tensor_name": "y", "dst_perm": [0, 2]}]},
            "dst_perm: [0, 2] is no order of 2 axes",
        ),
        ({"const_processors": [{"name": "c"}]}, "const_processors[0]: has neither data nor data_path"),
        ({"op_processors": [{"op_name": "c"}]}, "op_processors[0].attrs: must be given"),
        ({"compiler": {"check": 4}}, "compiler.check: must be from 0 to 3, not 4"),
        (
            {"compiler": {"start_tensor_names": ["x"]}},
            "compiler.start_tensor_names: belongs into an entry of sub_configs",
        ),
        (
            {
                "input_processors": [
                    {"tensor_name": "x", "src_extra_shapes": [{"shape": [1]}]},
                    {"tensor_name": "y"},
                ]
            },
            "src_extra_shapes: must have equally many entries for every input, not 0 and 1",
        ),
        ([], "the file: takes a table of keys and values, not []"),
    ],
)
def test_other_impossible_settings(config: Any, message: str, tmp_path: Path) -> None:
    assert message in refused(tmp_path, config)


def test_the_command_line_wins(tmp_path: Path) -> None:
    path = written(tmp_path, '{"quant": {"calibration_method": "MSE", "check": 1}, "target_hardware": "M57"}')
    config = load_config(
        path,
        [
            ("--quant.calibration_method", "Percentile"),
            ("quant.precision_analysis", None),
            ("quant.enable_smooth_quant", "1"),
            ("quant.disable_auto_refine_scale", "false"),
            ("quant.finetune_lr", "1e-2"),
            ("quant.finetune_epochs", "10"),
            ("input", "model.onnx"),
            ("debug.dump_frontend_graph", "true"),
        ],
    )
    quant = config.quant
    assert (quant.calibration_method, quant.precision_analysis) == (CalibrationMethod.Percentile, True)
    assert (quant.enable_smooth_quant, quant.disable_auto_refine_scale) == (True, False)
    assert (quant.finetune_lr, quant.finetune_epochs, quant.check) == (1e-2, 10, 1)
    assert (config.input, config.target_hardware) == ("model.onnx", TargetHardware.M57)
    assert config.debug.dump_frontend_graph


def test_wrong_options_are_named(tmp_path: Path) -> None:
    message = refused(
        tmp_path,
        {},
        ("--quant.calibration_metod", "MSE"),
        ("--quant.layer_configs", "[]"),
        ("--quant.check", None),
        ("--quant.precision_analysis", "maybe"),
        ("--quant.calibration_method", "mse"),
    )
    assert message.splitlines()[1:] == [
        "  --quant.calibration_metod: there is no such option; did you mean 'quant.calibration_method'?",
        "  --quant.layer_configs: is a list or a table, which the file has to give",
        "  --quant.check: needs a value",
        "  --quant.precision_analysis: takes true or false, not 'maybe'",
        "  on the command line: quant.calibration_method: cannot be 'mse'; did you mean 'MSE'?",
    ]


def test_the_ending_says_the_format(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is of no known format: its ending is '\.ini'"):
        load_config(written(tmp_path, "", "config.ini"))


def test_text_must_be_utf8(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{\n"input": "\xff"}')
    with pytest.raises(BadInput, match=r"line 2: the text is not UTF-8"):
        load_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"The configuration .* does not exist"):
        load_config(tmp_path / "none.json")


def test_a_wrong_file_does_not_flood_the_screen(tmp_path: Path) -> None:
    lines = refused(tmp_path, {f"key{index}": index for index in range(300)}).splitlines()
    assert (len(lines), lines[0], lines[-1]) == (102, "FILE has 300 errors:", "  ... and 200 more")
