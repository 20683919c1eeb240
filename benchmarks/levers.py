"""Every lever: what it does, whether float stays the same, what it costs, which chips have it, what it brought.

``python -m benchmarks levers [--folder DIR] [--page docs/reference/levers.md]`` measures them on the text
encoder of ``benchmarks networks``, alone and left out of what repairs it, on pairs of sentences that nothing
was made with. The table of levers and chips is made from the code; tests/test_levers.py holds the page to it.
Without ../shared or the packages the measured part of the page is kept as it is.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.network_kinds import NETWORKS, SHARED, _encoder_score, inputs_of
from benchmarks.networks import Pairs, fetch
from roundoff.core.plan import FLOAT, Precision, Recipe, Rule, Step
from roundoff.core.target import Costs, Target
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import load_model
from roundoff.graph.save import save_model
from roundoff.graph.transformers import find_parts
from roundoff.quantize.calibration.methods import all_methods
from roundoff.quantize.recipes import PER_CHANNEL, RecipeBuilder
from roundoff.quantize.steps import all_corrections, all_transforms
from roundoff.quantize.targets.files import load_target, target_names
from roundoff.run.capture import read_feed
from roundoff.search.cost import CostModel
from roundoff.search.problem import ModelProblem, Ranker
from roundoff.search.store import TrialJournal

NARROW = 8
MEASURED = "## Measured"
UNSEEN = 400
ABOUT = """\
# Levers

What `quantize`, `tune` and `diagnose --fix` can change. Written by `python -m benchmarks levers --page
docs/reference/levers.md`; the table is made from the code. *Float* says what the float network computes with
the lever. What is not free is weighed as `[cost]` of the [target](targets.md) says. Chips are those of
`roundoff targets`, and a chip that lacks a lever is never offered it.
"""


@dataclass(frozen=True)
class Lever:
    """A lever.

    Attributes:
        name: What it is called.
        does: What it does.
        exact: What the float network computes with it.
        cost: What it costs on the chip.
        by: Who pulls it.
        there: Whether a chip can have it.
    """

    name: str
    does: str
    exact: str
    cost: str
    by: str
    there: Callable[[Target], bool]


def _in_integers(target: Target) -> bool:
    return not target.weight_only


def _wide(target: Target) -> bool:
    """Whether sums of a residual stream can be held in more bits."""
    kinds = [each for each in target.activations if int(each[1:]) > NARROW]
    limits = [target.only.get(f"activation.{each}") for each in kinds]
    return _in_integers(target) and any(ops is None or "Add" in ops for ops in limits)


def _wide_products(target: Target) -> bool:
    kinds = [each for each in target.activations if int(each[1:]) > NARROW]
    limits = [target.only.get(f"activation.{each}") for each in kinds]
    return _in_integers(target) and any(ops is None or {"MatMul", "Conv"} & set(ops) for ops in limits)


_ASKED = "`tune`, `--fix`, `transform`"
_TRANSFORMS = {
    "clamp_mask": ("same bits, checked on the samples", "none", "every command, by itself"),
    "equalize": ("same but for rounding", "none; `clip=channels` one Min per Clip", _ASKED),
    "smooth": ("same but for rounding", "none where a norm or layer takes the factors up; else one Mul (`insert`)",
               _ASKED),
    "explicit_bias": ("same bits", "an addition that most chips have for nothing", "with `bias_correct`"),
    "block_weights": ("same bits", "a scale per block", "targets with `weight_block`"),
}  # fmt: skip


def levers() -> Iterator[Lever]:
    """All of them: free ones first."""
    costs = Costs()
    rewrites = {name for each in target_names() for name in _rewrites(load_target(each))}
    for step in all_transforms():
        exact, cost, by = _TRANSFORMS.get(
            step.name, ("same but for rounding", "as the toolchain has it", "targets")
        )
        there: Callable[[Target], bool] = _in_integers
        if step.name == "block_weights":
            there = _has_blocks
        elif step.name in rewrites:
            there = _has_rewrite(step.name)
        yield Lever(step.name, step.summary, exact, cost, by, there)
    names = ", ".join(f"`{each.name}`" for each in all_methods())
    does = f"How ranges of activations are found: {names}; for all tensors, or for single ones."
    yield Lever("calibration method", does, "same bits", "none", "`tune`, `--calibration`", _in_integers)
    does = "Ranges of weights with the smallest squared error."
    yield Lever("weight method", does, "same bits", "none", "`tune`", _anywhere)
    does = "A scale for each output channel of a weight."
    yield Lever(PER_CHANNEL, does, "same bits", "none", "targets, `tune` where a chip may", _has_axes)
    does = "One scale for what Add or Concat read and give."
    yield Lever("shared scale", does, "same bits", "none", "`tune`", _shares)
    for correction in all_corrections():
        yield Lever(
            correction.name, correction.summary, "untouched", "none", "`tune`, `--fix`, `transform`", _in_integers
        )
    does = "Residual additions, norms and sums of embeddings in 16 bits, as one; products stay at 8."
    yield Lever("wide stream", does, "same bits", "16 bits of them are moved", "`tune` as trial 2, `--fix`", _wide)
    does = "Smoothing of the layers that read norms, on top of the wide stream."
    cost = "one 16-bit Mul per norm where the stream reads it, too"
    yield Lever("smooth norms", does, "same but for rounding", cost, "`tune` as trial 3", _wide)
    does = "16-bit activations of single layers."
    yield Lever(
        "u16, s16",
        does,
        "same bits",
        f"{costs.product_16x8:g}x of their products",
        "`tune`, `--fix`, `--set`",
        _wide_products,
    )
    does = "16-bit weights of single layers."
    yield Lever(
        "weight=s16",
        does,
        "same bits",
        f"{costs.product_16x8:g}x of their products",
        "`tune`, `--set`",
        _wide_weights,
    )
    does = "Single nodes in float, what they read is not quantized either."
    yield Lever(
        "float",
        does,
        "same bits",
        f"{costs.product_float:g}x of their products",
        "`tune` last, `--set`",
        _has_float,
    )
    does = "Single weights of 4-bit models at 8 bits."
    yield Lever(
        "weight=s8", does, "same bits", "twice their bytes", "named by `quantize`, `--set`", _narrow_weights
    )


def _rewrites(target: Target) -> tuple[str, ...]:
    return (*target.rewrites, *target.possible_rewrites)


def _has_rewrite(name: str) -> Callable[[Target], bool]:
    return lambda target: name in _rewrites(target)


def _has_blocks(target: Target) -> bool:
    return bool(target.weight_block)


def _has_axes(target: Target) -> bool:
    return bool(target.weight_axes or target.weight_axes_possible)


def _shares(target: Target) -> bool:
    return _in_integers(target) and not target.float_results


def _wide_weights(target: Target) -> bool:
    return any(int(each[1:]) > NARROW for each in target.weights) and _in_integers(target)


def _narrow_weights(target: Target) -> bool:
    return target.weight_only and int(target.weight[1:]) < NARROW


def _has_float(target: Target) -> bool:
    return target.float_allowed and _in_integers(target)


def _anywhere(_: Target) -> bool:
    return True


def table() -> str:
    """The levers, and which chips have them."""
    chips = {name: load_target(name) for name in target_names()}
    lines = ["| lever | what it does | float | cost | pulled by | chips |", "|---|---|---|---|---|---|"]
    for lever in levers():
        can = [name for name, chip in chips.items() if lever.there(chip)]
        without = [name for name in chips if name not in can]
        few = len(can) <= len(without)
        listed = ", ".join(can) if few else "all but " + ", ".join(without) if without else "all"
        cells = (f"`{lever.name}`", lever.does, lever.exact, lever.cost, lever.by, listed or "none")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


# What they bring: alone, and left out of a model that is repaired.


def recipes(problem: ModelProblem, builder: RecipeBuilder) -> Iterator[tuple[str, Recipe]]:
    """Names and recipes: plain, levers alone, the repaired one, that without each of its parts and with more."""
    plain, mask = Recipe(), Step("clamp_mask")
    limited = replace(plain, transforms=(mask,))
    wide = problem.with_wide_stream(limited)
    if wide is None:
        return
    stream = wide.rules
    parts = find_parts(builder.prepared.model)
    norms = {name for norm in parts.norms for name in norm.nodes}
    smooth = Step("smooth", (("insert", True), ("threshold", 1.0)), parts.norm_readers)
    cured = problem.with_smooth_norms(wide)
    yield "plain int8, mask as it is", plain
    yield "clamp_mask alone", limited
    yield "wide stream alone", replace(plain, rules=stream)
    yield "smooth norms alone", replace(plain, transforms=(smooth,))
    yield "clamp_mask + wide stream (trial 2)", wide
    if cured is not None:
        yield "clamp_mask + wide stream + smooth norms (trial 3)", cured
        yield "the same without clamp_mask", replace(cured, transforms=cured.transforms[1:])
        yield "the same without 16-bit norms", _without(cured, norms)
        yield "the same without 16-bit additions", _without(cured, {*parts.residual_adds, *parts.embedding_adds})
    products = Rule("op", ("MatMul",), Precision("u16"))
    for name, changed in (
        ("percentile", replace(wide, method="percentile")),
        ("mse", replace(wide, method="mse")),
        ("bias_correct", replace(wide, transforms=(*wide.transforms, Step("explicit_bias")),
                                 corrections=(Step("bias_correct"),))),
        ("float mask and Softmax", replace(wide, rules=(*stream, *_rules(_islands(parts), FLOAT)))),
        ("16-bit GELU", replace(wide, rules=(*stream, *_rules(_activations(parts), "u16")))),
        ("16-bit inputs of all products", replace(wide, rules=(*stream, products))),
    ):  # fmt: skip
        yield f"trial 2 + {name}", changed


def _without(recipe: Recipe, nodes: set[str]) -> Recipe:
    return replace(recipe, rules=tuple(each for each in recipe.rules if each.selector[0] not in nodes))


def _rules(nodes: list[str], precision: str) -> Iterator[Rule]:
    return (Rule("node", (name,), Precision(precision, output="")) for name in nodes)


def _islands(parts: object) -> list[str]:
    attentions = getattr(parts, "attentions", ())
    added = [each.node for part in attentions for each in part.operands]
    return [*dict.fromkeys((*added, *(part.softmax for part in attentions)))]


def _activations(parts: object) -> list[str]:
    return [name for each in getattr(parts, "activations", ()) for name in each.nodes]


def measured(folder: Path) -> Iterator[str]:
    """Rows of the second table; nothing where the network is not there."""
    network = NETWORKS[0]
    packages = fetch(network.packages, folder)
    if packages is None:
        return
    work = Path(tempfile.mkdtemp(dir=folder))
    path = network.make(packages, work)
    for each in work.glob("unseen_*.npy"):
        np.save(each, np.load(each)[:UNSEEN])
    samples = Pairs({name: np.load(work / f"calibration_{name}.npy") for name in inputs_of(work)})
    chip = load_target("generic-int8")
    builder = RecipeBuilder(load_model(path), samples, chip)
    model = builder.prepared.model
    costs = CostModel(model, read_feed(model, samples, 0), chip.costs)
    problem = ModelProblem(builder, Recipe(), costs=costs, ranker=Ranker(samples), journal=TrialJournal(None, {}))
    exact = _encoder_score(path, work)
    yield f"| float | {exact:.2f} | | | |"
    for name, recipe in recipes(problem, builder):
        began = time.process_time()
        try:
            built = builder.build(recipe)
        except Exception as why:  # noqa: BLE001 - a row says so
            yield f"| {name} | {why} | | | |"
            continue
        made = work / "made.onnx"
        save_model(fake_quant_model(built.quantized.float_model, built.quantized.quantizers), made, replace=True)
        took = time.process_time() - began
        found = _encoder_score(made, work)
        proxy = problem.proxy_db(recipe)
        decibels = "" if proxy is None else f"{proxy:.1f}"
        share, cost = found / exact, problem.cost(recipe)
        yield f"| {name} | {found:.2f} | {share:.1%} | {decibels} | {cost:.2f} | {took:.0f} |"


def page(before: str, rows: list[str]) -> str:
    """The page; what was measured before stays where nothing is measured now."""
    part = before[before.index(MEASURED) :] if MEASURED in before else ""
    if rows:
        about = (
            f"{MEASURED}\n\nOn {NETWORKS[0].name}, {UNSEEN} pairs that nothing was made with, `generic-int8`.\n"
            "dB is the signal to noise of the outputs on calibration samples, cost is relative to plain int8,\n"
            "CPU seconds are those of making the model.\n\n"
            "| recipe | Spearman x 100 | of float | dB | cost | CPU s |\n|---|---|---|---|---|---|"
        )
        part = "\n".join([about, *rows])
    return f"{ABOUT}\n{table()}\n\n{part}".rstrip() + "\n"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "roundoff-networks")
    asked.add_argument("--page", type=Path, default=None)
    asked.add_argument("--table", action="store_true", help="measure nothing")
    given = asked.parse_args()
    rows: list[str] = []
    if not given.table and (SHARED / "data" / "stsb-en-dev.csv").exists():
        given.folder.mkdir(parents=True, exist_ok=True)
        for row in measured(given.folder):
            print(row, flush=True)
            rows.append(row)
    if given.page is not None:
        before = given.page.read_text("utf-8") if given.page.exists() else ""
        given.page.write_text(page(before, rows), "utf-8")
    elif given.table:
        print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
