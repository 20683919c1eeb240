"""The fields of the simplified configuration."""

from roundoff.core.text_proto import Field, FieldTable

__all__ = ["SIMPLIFIED"]

_DST_TYPES = {"INT8": 1, "INT16": 2}
_ARQ = FieldTable("arq_quantize", {"channel_wise": Field("bool"), "quant_bits": Field("int")})
_ADA = FieldTable(
    "ada_quantize",
    {
        "num_iteration": Field("int"), "reg_param": Field("float"), "beta_range_start": Field("float"),
        "beta_range_end": Field("float"), "warm_start": Field("float"), "channel_wise": Field("bool"),
    },
)  # fmt: skip
_IFMR = FieldTable(
    "ifmr_quantize",
    {
        "search_range_start": Field("float"), "search_range_end": Field("float"), "search_step": Field("float"),
        "max_percentile": Field("float"), "min_percentile": Field("float"), "asymmetric": Field("bool"),
        "dst_type": Field("enum", names=_DST_TYPES),
    },
)  # fmt: skip
_HFMG = FieldTable(
    "hfmg_quantize",
    {"num_of_bins": Field("int"), "asymmetric": Field("bool"), "dst_type": Field("enum", names=_DST_TYPES)},
)
_DMQ = FieldTable("dmq_balancer", {"migration_strength": Field("float")})
_NUQ = FieldTable("nuq_quantize", {"num_steps": Field("int"), "num_of_iteration": Field("int")})
_INPUT = {"ifmr_quantize": Field("message", table=_IFMR), "hfmg_quantize": Field("message", table=_HFMG)}
_CALIBRATION = FieldTable(
    "calibration_config",
    {
        "arq_quantize": Field("message", table=_ARQ),
        "ada_quantize": Field("message", table=_ADA),
        "nuq_quantize": Field("message", table=_NUQ),
        **_INPUT,
        "dmq_balancer": Field("message", table=_DMQ),
    },
    one_of=(("arq_quantize", "ada_quantize", "nuq_quantize"), ("ifmr_quantize", "hfmg_quantize")),
)


def _override(name: str, key: str) -> Field:
    config = Field("message", table=_CALIBRATION, required=True)
    return Field(
        "message",
        repeated=True,
        table=FieldTable(name, {key: Field("string", required=True), "calibration_config": config}),
    )


SIMPLIFIED = FieldTable(
    "AMCTConfig",
    {
        "batch_num": Field("int"),
        "activation_offset": Field("bool"),
        "joint_quant": Field("bool"),
        "weight_offset": Field("bool"),
        "skip_layers": Field("string", repeated=True),
        "skip_layer_types": Field("string", repeated=True),
        "fakequant_precision_mode": Field("enum", names={"DEFAULT": 0, "FORCE_FP16_QUANT": 1}),
        "common_config": Field("message", table=_CALIBRATION),
        "conv_calibration_config": Field("message", table=_CALIBRATION),
        "fc_calibration_config": Field("message", table=_CALIBRATION),
        "override_layer_types": _override("override_layer_types", "layer_type"),
        "override_layer_configs": _override("override_layer_configs", "layer_name"),
        "do_fusion": Field("bool"),
        "skip_fusion_layers": Field("string", repeated=True),
        "tensor_quantize": Field(
            "message",
            repeated=True,
            table=FieldTable(
                "tensor_quantize",
                {
                    "layer_name": Field("string", required=True),
                    "input_index": Field("int", required=True),
                    **_INPUT,
                },
                one_of=(("ifmr_quantize", "hfmg_quantize"),),
            ),
        ),
        "nuq_config": Field(
            "message",
            table=FieldTable(
                "nuq_config", {"mapping_file": Field("string"), "nuq_quantize": Field("message", table=_NUQ)}
            ),
        ),
    },
)
"""All that a simplified configuration can say; `nuq_config` is read and then refused by name."""
