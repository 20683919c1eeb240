"""The tables of a build, and what they mean, in words."""

from roundoff.core.wording import counted
from roundoff.vendors.pulsar2.building.log import Log
from roundoff.vendors.pulsar2.building.material import Material
from roundoff.vendors.pulsar2.building.precision import Analysis
from roundoff.vendors.pulsar2.building.tree import CHART, TABLE, Tree
from roundoff.vendors.pulsar2.config.applicability import not_applicable
from roundoff.vendors.pulsar2.config.enums import PrecisionAnalysisMethod
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.layers.entries import asked_for
from roundoff.vendors.pulsar2.layers.resolving import ResolvedLayers
from roundoff.vendors.pulsar2.layers.table import resolution_table
from roundoff.vendors.pulsar2.tables import LayerConfigRow, layer_config_table, precision_table, quant_config_table
from roundoff.vendors.pulsar2.tuning.charts import GOOD_LAYER, GOOD_OUTPUT

__all__ = ["tell_analysis", "tell_configuration", "tell_resolution"]

_LISTED = 5


def tell_configuration(log: Log, config: BuildConfig, material: Material, tree: Tree) -> None:
    """Show what inputs are calibrated with, what is asked for layers, and what has no meaning here."""
    for each in not_applicable(config):
        log.alert(f"{each.field} = {each.value} changes nothing here: {each.why}")
    log.table(quant_config_table(material.rows(tree), width=log.width))
    rows = [
        LayerConfigRow(name, precision)
        for entry in config.quant.layer_configs
        for name, precision in asked_for(entry)
    ]
    if rows:
        log.table(layer_config_table(rows, width=log.width))
    log.tell(f"Transformer optimize level: {config.quant.transformer_opt_level}")


def tell_resolution(log: Log, resolved: ResolvedLayers, config: BuildConfig) -> None:
    """Show what became of layer_configs."""
    if not resolved.entries:
        return
    log.table(resolution_table(resolved.entries, width=log.width))
    missed = sum(len(entry.nodes) - entry.applied for entry in resolved.entries)
    if missed and not config.quant.highest_mix_precision:
        log.alert(f"layer_configs are not in effect at {counted(missed, 'node')} they name; the table says why")


def tell_analysis(log: Log, analysis: Analysis, tree: Tree, *, advise: bool = True) -> None:
    """Show the precision table and what is remarkable in it.

    Args:
        log: Where to.
        analysis: What was measured.
        tree: Where it is written.
        advise: Say what to type next when it is not enough.
    """
    method, mode = analysis.method.name, analysis.mode.name
    log.tell(f"precision analysis, {method} {mode}, on {counted(len(analysis.samples), 'sample')}")
    log.table(precision_table(analysis.rows, method=method, mode=mode, width=log.width, fold=True))
    log.tell(f"save precision analysis table to [{tree.shown(TABLE)}]")
    log.tell(f"save precision analysis graph to [{tree.shown(CHART)}]")
    _tell_judgement(log, analysis, advise=advise)
    for finding in analysis.findings[:_LISTED]:
        log.alert(
            f"Reference and NPUBackend disagree at {finding.operator}: {finding.share:.2%} of the codes of "
            f"{finding.tensor!r} differ by more than one step, which rounding cannot explain"
        )
    if len(analysis.findings) > _LISTED:
        log.alert(f"... and at {counted(len(analysis.findings) - _LISTED, 'more layer')}; see build_context.json")
    for text in analysis.overflows:
        log.alert(f"overflow at {text}")
    for text in analysis.in_float[:_LISTED]:
        log.tell(f"ran in float, not in integers: {text}")


def _tell_judgement(log: Log, analysis: Analysis, *, advise: bool) -> None:
    unknown = [row.operator for row in analysis.rows if row.cosine is None]
    if unknown:
        more = f" and {len(unknown) - _LISTED} more" if len(unknown) > _LISTED else ""
        log.alert(f"no cosine, as nothing finite can be compared: {', '.join(unknown[:_LISTED])}{more}")
    if analysis.method is PrecisionAnalysisMethod.EndToEnd:
        cosine = analysis.output_cosine
        if cosine is None:
            log.alert("no output can be judged by its cosine")
        elif cosine > GOOD_OUTPUT:
            log.tell(f"the worst output has a cosine of {cosine:.5f}, above {GOOD_OUTPUT}: try it on the board")
        else:
            following = ": 'roundoff pulsar2 tune' with this configuration goes on" if advise else ""
            log.alert(f"the worst output has a cosine of {cosine:.5f}, not above {GOOD_OUTPUT}{following}")
        return
    low = [row for row in analysis.rows if row.cosine is not None and row.cosine <= GOOD_LAYER]
    if not low:
        log.tell(f"all layers have a cosine above {GOOD_LAYER} by themselves; EndToEnd says how they add up")
    else:
        low.sort(key=lambda row: row.cosine or 0.0)
        names = ", ".join(f"{row.operator} ({row.cosine:.5f})" for row in low[:_LISTED])
        more = f" and {len(low) - _LISTED} more" if len(low) > _LISTED else ""
        log.alert(f"not above {GOOD_LAYER} by themselves: {counted(len(low), 'layer')}, {names}{more}")
