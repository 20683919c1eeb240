"""The flow charts, on made-up problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from roundoff.search.strategies.flow_charts import (
    ChartDecision,
    ChartGoal,
    ChartLayer,
    ChartSettings,
    follow_charts,
)

METHODS = ("MinMax", "MSE", "Percentile")


@dataclass
class Problem:
    """Layers whose cosines are known in 8 and in 16 bits; the output is the worst of them.

    Attributes:
        layers: Name of each layer with its cosine in 8 and in 16 bits.
        bonus: What a method adds to the output.
    """

    layers: dict[str, tuple[float, float]]
    bonus: dict[str, float] = field(default_factory=dict)
    looks: int = 0

    def cosine(self, name: str, raised: Mapping[str, str]) -> float:
        return self.layers[name][name in raised]

    def end_to_end(self, settings: ChartSettings) -> float | None:
        worst = min(self.cosine(name, settings.raised) for name in self.layers) if self.layers else None
        extra = [settings.method, *settings.switches, *settings.float_weights]
        return None if worst is None else worst + sum(self.bonus.get(name, 0.0) for name in extra)

    def per_layer(self, settings: ChartSettings) -> Sequence[ChartLayer]:
        self.looks += 1
        raised = settings.raised
        return [
            ChartLayer(
                name, self.cosine(name, raised), {} if name in raised else {name: "U16"}, name in self.bonus
            )
            for name in self.layers
        ]


def steps(decisions: Sequence[ChartDecision]) -> list[tuple[str, str, str, int]]:
    return [(each.chart, each.analysis, each.method, each.raised) for each in decisions]


def test_the_first_method_is_enough() -> None:
    found = follow_charts(Problem({"a": (0.99, 1.0)}), METHODS)
    assert steps(found.decisions) == [("A", "EndToEnd", "MinMax", 0)]
    assert (found.met, found.settings, found.cosine) == (True, ChartSettings("MinMax"), 0.99)
    assert found.decisions[0].verdict == "above 0.98: good enough"


def test_methods_are_tried_in_their_order() -> None:
    found = follow_charts(Problem({"a": (0.97, 1.0)}, {"Percentile": 0.02}), METHODS)
    assert [each.method for each in found.decisions] == ["MinMax", "MSE", "Percentile"]
    assert (found.met, found.settings.method) == (True, "Percentile")
    assert found.decisions[0].verdict == "not above 0.98; next: MSE"


def test_what_falls_short_gets_16_bits() -> None:
    problem = Problem({"a": (0.9999, 1.0), "b": (0.9, 0.9995), "c": (0.998, 0.9999)})
    found = follow_charts(problem, METHODS)
    assert steps(found.decisions) == [
        ("A", "EndToEnd", "MinMax", 0),
        ("A", "EndToEnd", "MSE", 0),
        ("A", "EndToEnd", "Percentile", 0),
        ("B", "PerLayer", "MinMax", 0),
        ("B", "PerLayer", "MinMax", 2),
        ("B", "EndToEnd", "MinMax", 2),
    ]
    assert (found.met, found.settings.raised, found.stuck) == (True, {"b": "U16", "c": "U16"}, ())
    assert found.decisions[3].verdict == "b, c not above 0.999; 16 bits for b, c"
    assert found.decisions[3].cosine == 0.9


def test_a_layer_that_16_bits_do_not_help_ends_in_a_ticket() -> None:
    found = follow_charts(Problem({"a": (0.5, 0.6)}, {"MSE": 0.01}), METHODS)
    assert (found.met, found.stuck, found.settings) == (False, ("a",), ChartSettings("MSE", {"a": "U16"}))
    assert "a not above 0.999 with 16 bits: a ticket, says the manual" in found.decisions[4].verdict
    assert found.decisions[-1].verdict == "not above 0.98; next: a ticket, says the manual"
    assert found.cosine == 0.61


def test_behind_the_charts_whatever_helps_is_kept() -> None:
    problem = Problem({"a": (0.5, 0.6)}, {"smooth": 0.2, "rounding": -0.1, "a": 0.19})
    found = follow_charts(problem, METHODS, switches=("smooth", "rounding"))
    rest = [each for each in found.decisions if each.chart == "+"]
    assert [each.cosine for each in rest] == [0.8, 0.7, 0.99]
    assert rest[0].verdict == "smooth: not above 0.98; next: rounding"
    assert rest[2].verdict == "weights of a in FP32: above 0.98: good enough"
    assert found.met
    assert found.settings == ChartSettings("MinMax", {"a": "U16"}, ("smooth",), ("a",))


def test_the_output_may_be_enough_although_a_layer_is_not() -> None:
    found = follow_charts(Problem({"a": (0.5, 0.99)}), METHODS)
    assert (found.met, found.stuck) == (True, ("a",))


def test_a_loss_that_adds_up_is_not_measured_twice() -> None:
    found = follow_charts(Problem({"a": (0.9995, 1.0)}, dict.fromkeys(METHODS, -0.1)), METHODS)
    assert len(found.decisions) == 4
    assert found.decisions[-1].verdict == (
        "all layers above 0.999; none to raise: it adds up over layers, and EndToEnd is as in chart A"
    )
    assert not found.met


def test_nothing_that_can_be_judged() -> None:
    found = follow_charts(Problem({}), METHODS)
    assert (found.met, found.cosine) == (False, None)


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=2),
        st.tuples(st.floats(0, 1), st.floats(0, 1)),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.sampled_from(["MinMax", "MSE", "Percentile", "KL"]), min_size=1, max_size=4, unique=True),
    st.floats(0.1, 0.99),
)
def test_it_ends_and_reports_what_was_measured(
    layers: dict[str, tuple[float, float]], methods: list[str], output: float
) -> None:
    problem = Problem(layers)
    told: list[ChartDecision] = []
    found = follow_charts(problem, methods, ChartGoal(output, 0.999), told=told.append)
    assert tuple(told) == found.decisions
    # Every look but the last raises a layer.
    assert problem.looks <= len(layers) + 1
    assert found.cosine == problem.end_to_end(found.settings)
    assert found.met == (found.cosine is not None and found.cosine > output)
    # No model that was measured end to end is better.
    measured = [each.cosine for each in found.decisions if each.analysis == "EndToEnd" and each.cosine is not None]
    assert found.cosine == max(measured)
    assert follow_charts(Problem(layers), methods, ChartGoal(output, 0.999)) == found
