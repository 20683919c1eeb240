"""Following the flow charts for a configuration, and delivering what they lead to."""

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from roundoff.core.files import check_output_directory, write_text
from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.report.documents import json_text
from roundoff.vendors.pulsar2.building.build import BuildOptions, BuildResult, build, check_complete
from roundoff.vendors.pulsar2.building.log import Log
from roundoff.vendors.pulsar2.building.material import gather, located, sample_directory
from roundoff.vendors.pulsar2.building.tree import CONTEXT
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.config.writing import to_json
from roundoff.vendors.pulsar2.layers.resolving import refuse_unknown, resolve_layers
from roundoff.vendors.pulsar2.tables.rendering import NATURAL, Column, render_table
from roundoff.vendors.pulsar2.tuning.charts import Decision, Followed, Goal, Settings, follow_charts
from roundoff.vendors.pulsar2.tuning.trials import ModelTrials, tuned_config

__all__ = ["CONFIG_NAME", "DECISIONS_NAME", "DEFAULT_METHODS", "Tuned", "decisions_table", "tune_build"]

CONFIG_NAME, DECISIONS_NAME = "config.json", "tuning.json"
"""What is written beside the build: the answer, and how it was found."""

DEFAULT_METHODS = ("MinMax", "MSE", "Percentile")
"""Those of the manual, in its order."""

# Tried behind the charts; what is on already is no news.
_SWITCHES = ("enable_smooth_quant", "enable_adaround")

_COLUMNS: tuple[Column, ...] = (
    ("#", "left"), ("Chart", "left"), ("Analysis", "left"), ("Method", "left"), ("16 bit", "left"),
    ("Cosin", "left"), ("What follows", "left"),
)  # fmt: skip
# The same model on the same samples; only sums in another order may differ.
_SAME = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """What tuning gave.

    Attributes:
        followed: The way there.
        config: The configuration it leads to.
        result: The build with it.
    """

    followed: Followed
    config: BuildConfig
    result: BuildResult

    @property
    def verified(self) -> bool:
        """Whether the build has the cosine that the charts ended with."""
        built = None if self.result.analysis is None else self.result.analysis.output_cosine
        if built is None or self.followed.cosine is None:
            return built is self.followed.cosine
        return abs(built - self.followed.cosine) <= _SAME


def tune_build(
    config: BuildConfig,
    log: Log,
    *,
    methods: Sequence[str] = DEFAULT_METHODS,
    goal: Goal | None = None,
    options: BuildOptions | None = None,
) -> Tuned:
    """Follow the flow charts, build with the configuration they lead to, and write down how it came about.

    Args:
        config: Where it starts.
        log: Told what is done.
        methods: Calibration methods, in the order they are tried.
        goal: When a model is close enough.
        options: How the model is built.

    Raises:
        BadInput: The model, the data and the configuration do not fit together, or the folder is taken.
        ModelFailed: The model cannot be run.
    """
    options = replace(options or BuildOptions(), advise=False)
    check_complete(config)
    if config.quant.highest_mix_precision:
        what = "With highest_mix_precision nothing is quantized, so there is nothing to tune."
        raise BadInput(what, fix="leave it out")
    folder, goal = Path(config.output_dir), goal or Goal()
    check_output_directory(folder, marker=CONTEXT, force=options.force, option="--output_dir")
    with tempfile.TemporaryDirectory() as unpacked:
        followed = _followed(config, log, Path(unpacked), methods=methods, goal=goal, options=options)
    log.table(decisions_table(followed.decisions, width=log.width))
    final = replace(config, quant=tuned_config(config.quant, followed.settings))
    log.tell(f"building with {_answer(followed.settings)}")
    result = build(final, log, options=options)
    tuned = Tuned(followed, final, result)
    write_text(folder / CONFIG_NAME, to_json(final))
    write_text(folder / DECISIONS_NAME, json_text(_document(tuned, goal)))
    _tell(log, tuned, goal)
    return tuned


def _followed(
    config: BuildConfig, log: Log, unpacked: Path, *, methods: Sequence[str], goal: Goal, options: BuildOptions
) -> Followed:
    material = gather(config, unpacked, base=options.base, log=Log())
    measured = None
    if config.quant.input_sample_dir:
        measured = sample_directory(located(config.quant.input_sample_dir, options.base), material.model)
    trials = ModelTrials(
        material.model,
        material.samples,
        config,
        measured=measured,
        max_memory=options.max_memory,
        progress=log.progress,
    )
    refuse_unknown(resolve_layers(config.quant.layer_configs, trials.frontend))
    switches = [name for name in _SWITCHES if not getattr(config.quant, name)]
    return follow_charts(trials, methods, goal, switches=switches, told=lambda each: log.tell(_line(each)))


def _answer(settings: Settings) -> str:
    weights = f"float weights in {counted(len(settings.float_weights), 'layer')}" if settings.float_weights else ""
    parts = (settings.method, f"{counted(len(settings.raised), 'layer')} of 16 bits", *settings.switches, weights)
    return ", ".join(filter(None, parts))


def _line(decision: Decision) -> str:
    cosine = "no cosine" if decision.cosine is None else f"{decision.cosine:.5f}"
    where = f"chart {decision.chart}, {decision.analysis}, {decision.method}"
    return f"{where}, {counted(decision.raised, 'layer')} of 16 bits: {cosine}, {decision.verdict}"


def decisions_table(decisions: Sequence[Decision], *, width: int = NATURAL) -> str:
    """All steps, with what followed from each."""
    rows = [
        (
            str(number),
            each.chart,
            each.analysis,
            each.method,
            str(each.raised),
            "None" if each.cosine is None else f"{each.cosine:.5f}",
            each.verdict,
        )
        for number, each in enumerate(decisions, 1)
    ]
    return render_table("Tuning Steps", _COLUMNS, rows, width=width, fold=True)


def _document(tuned: Tuned, goal: Goal) -> Mapping[str, Any]:
    followed, analysis = tuned.followed, tuned.result.analysis
    return {
        "goal": asdict(goal),
        "decisions": [asdict(each) for each in followed.decisions],
        "method": followed.settings.method,
        "layers": dict(followed.settings.raised),
        "switches": list(followed.settings.switches),
        "float_weights": list(followed.settings.float_weights),
        "output_cosine": followed.cosine,
        "output_cosine_of_build": None if analysis is None else analysis.output_cosine,
        "verified": tuned.verified,
        "met": followed.met,
        "stuck": list(followed.stuck),
    }


def _tell(log: Log, tuned: Tuned, goal: Goal) -> None:
    followed = tuned.followed
    if not tuned.verified:
        log.alert(f"the build does not have the cosine of the trial, {followed.cosine}: please report this")
    cosine = "no cosine" if followed.cosine is None else f"a cosine of {followed.cosine:.5f}"
    if followed.met:
        log.tell(f"good enough: the worst output has {cosine}, above {goal.output}")
        return
    log.alert(f"not good enough: the worst output has {cosine}, not above {goal.output}, whatever is tried")
    log.tell("what is left is a ticket to the vendor, with everything needed to see the loss:")
    log.tell(f"  {shlex.join(['roundoff', 'bundle', str(tuned.result.folder), '-o', 'case.zip'])}")
