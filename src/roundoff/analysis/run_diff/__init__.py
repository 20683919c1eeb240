"""Comparing two runs of one command: which nodes got better or worse, and whether a gate lets that pass."""

from roundoff.analysis.run_diff.budgets import Budgets, decibels, read_budgets
from roundoff.analysis.run_diff.comparing import FLOOR_DB, diff_runs
from roundoff.analysis.run_diff.gating import MAX_REGRESSION_DB, judge_diff, new_problems

__all__ = [
    "FLOOR_DB", "MAX_REGRESSION_DB", "Budgets", "decibels", "diff_runs", "judge_diff", "new_problems",
    "read_budgets",
]  # fmt: skip
