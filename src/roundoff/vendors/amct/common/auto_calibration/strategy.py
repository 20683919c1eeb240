"""Which layers go back to float next: what users derive from, and bisection over the ranking."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from roundoff.search.recipe_text import next_count

__all__ = ["AutoCalibrationStrategyBase", "BinarySearchStrategy"]


class AutoCalibrationStrategyBase:
    """Proposes layers that go back to float, and is told how it went.

    Attributes:
        result: For those who derive from it, to keep the last answer in.
    """

    def __init__(self) -> None:
        self.result: dict[str, Any] = {}

    def initialize(self, ranking_info: Mapping[str, float]) -> None:
        """Begin a search.

        Args:
            ranking_info: The layers that are quantized, each with a number; the higher, the less sensitive.
        """
        raise NotImplementedError("a strategy needs a method initialize()")

    def update_quant_config(self, metric_eval: tuple[bool, float]) -> dict[str, Any]:
        """Propose what to try next.

        Args:
            metric_eval: What the evaluator said of the last proposal; at first of the model in which all layers
                are quantized.

        Returns:
            ``stop_flag``: whether the search has ended, ``roll_back_config``: for every layer whether it stays
            quantized (False: back to float); with the flag set, the answer.
        """
        raise NotImplementedError("a strategy needs a method update_quant_config()")


class BinarySearchStrategy(AutoCalibrationStrategyBase):
    """Bisects the number of most sensitive layers that go back to float."""

    def __init__(self) -> None:
        super().__init__()
        self._ranking: list[str] = []
        self._counts: list[int] = []
        self._outcomes: list[bool] = []

    def initialize(self, ranking_info: Mapping[str, float]) -> None:
        """Begin a search: layers with the lowest numbers go back first."""
        self._ranking = sorted(ranking_info, key=lambda name: ranking_info[name])
        self._counts, self._outcomes = [], []

    def update_quant_config(self, metric_eval: tuple[bool, float]) -> dict[str, Any]:
        """Propose the next number of layers."""
        met = bool(metric_eval[0])
        if self._counts:
            self._outcomes.append(met)
        elif met:
            return self._answer(0, stop=True)
        count = next_count(len(self._ranking), self._outcomes)
        if count is not None:
            self._counts.append(count)
            return self._answer(count, stop=False)
        enough = [tried for tried, good in zip(self._counts, self._outcomes, strict=True) if good]
        return self._answer(min(enough, default=len(self._ranking)), stop=True)

    def _answer(self, count: int, *, stop: bool) -> dict[str, Any]:
        config = OrderedDict((name, place >= count) for place, name in enumerate(self._ranking))
        self.result = {"stop_flag": stop, "roll_back_config": config}
        return self.result
