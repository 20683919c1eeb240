"""Thresholds from the command line and from profiles."""

import tomllib
from importlib import resources
from pathlib import Path

import pytest

from roundoff.errors import BadInput
from roundoff.measure.metrics import get_metric
from roundoff.measure.verdicts import load_profile, parse_thresholds


def test_the_direction_comes_from_the_metric() -> None:
    limits = parse_thresholds("cosine=0.99, rmse = 1")
    assert limits.describe() == "cosine >= 0.99, rmse <= 1"
    assert limits.holds({"cosine": 0.99, "rmse": 1.0})
    assert not limits.holds({"cosine": 0.9899, "rmse": 0.5})
    assert not limits.holds({"cosine": 1.0, "rmse": 1.1})
    assert not limits.holds({"cosine": 1.0})
    assert not limits.holds({"cosine": float("nan"), "rmse": 0.0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine", "'cosine' is not a threshold"),
        ("", "'' is not a threshold"),
        ("cosine=high", "cosine=high is not a number"),
        ("cosine=nan", "cosine=nan is not a number"),
        ("cosine=1,cosine=0.9", "for cosine is given twice"),
        ("cosign=1", "no metric 'cosign'"),
        ("zeros=0.1", "zeros describes, it does not judge"),
    ],
)
def test_bad_thresholds_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_thresholds(text)


_TEXT = resources.files("roundoff.measure").joinpath("profiles.toml").read_text("utf-8")
PROFILES = {name: entry["about"] for name, entry in tomllib.loads(_TEXT).items()}
METRICS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"


def test_every_profile_is_usable_and_explained() -> None:
    for name, about in PROFILES.items():
        profile = load_profile(name)
        assert about.endswith(".")
        assert profile.scope in ("all", "outputs")
        assert profile.thresholds
        for threshold in profile.thresholds:
            assert threshold.higher_is_better == (get_metric(threshold.metric).direction == "higher")


def test_vendor_limits_are_the_published_ones() -> None:
    assert load_profile("ascend").describe() == (
        "cosine >= 0.99, relative_euclidean <= 0.05, kl_divergence <= 0.005, rmse <= 1, mean_relative_error <= 1"
    )
    assert (load_profile("axera").describe(), load_profile("axera").scope) == ("cosine >= 0.98", "outputs")
    assert load_profile("hailo").describe() == "sqnr_db >= 10"


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"no profile 'asend'[\s\S]*did you mean 'ascend'"):
        load_profile("asend")


def test_the_documented_profiles_are_those_that_ship() -> None:
    expected = []
    for name, about in PROFILES.items():
        profile = load_profile(name)
        limits = ", ".join(f"`{threshold.describe()}`" for threshold in profile.thresholds)
        scope = {"all": "all tensors", "outputs": "outputs only"}[profile.scope]
        expected.append(f"| `{name}` | {about} | {limits} | {scope} |")
    section = METRICS_PAGE.read_text(encoding="utf-8").partition("## Profiles")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| `")] == expected
