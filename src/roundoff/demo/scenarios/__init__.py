"""Stories the demo tells: what they start from, the command that is run, and what to look at."""

from roundoff.demo.scenarios.scenario import SCENARIOS, Scenario, scenario

__all__ = ["SCENARIOS", "Scenario", "scenario"]
