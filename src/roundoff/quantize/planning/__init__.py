"""Planning: where a model is quantized, and in which precision."""

from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.planning.rules import load_rules, parse_rule

__all__ = ["load_rules", "parse_rule", "plan_quantization"]
