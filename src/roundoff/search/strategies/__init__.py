"""Ways to search. A strategy is a function of a problem and its trials: the next recipe, or None at the end.

To add one, write it in a file of its own and name it below; users give theirs as a Python file.
"""

from roundoff.core.table import Table
from roundoff.search.strategies.flow_charts import charts
from roundoff.search.strategies.ranked import bisect, greedy, pareto
from roundoff.search.strategies.strategy import Strategy, load_strategy, stepwise

__all__ = ["STRATEGIES", "Strategy", "load_strategy", "stepwise"]

STRATEGIES: Table[Strategy] = Table(
    "strategy",
    (
        (each.name, each)
        for each in (
            Strategy("greedy", stepwise(greedy)),
            Strategy("bisect", stepwise(bisect)),
            Strategy("pareto", stepwise(pareto), early=False),
            Strategy("pulsar2", stepwise(charts)),
        )
    ),
)
"""The strategies that come with roundoff, by name; the first is the default."""
