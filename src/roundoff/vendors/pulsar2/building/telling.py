"""The tables of a build, and what they mean, in words."""

from roundoff.core.wording import counted
from roundoff.vendors.pulsar2.building.log import Log
from roundoff.vendors.pulsar2.building.material import Material
from roundoff.vendors.pulsar2.building.precision import Analysis
from roundoff.vendors.pulsar2.building.tree import CHART, TABLE, Tree
from roundoff.vendors.pulsar2.config.applicability import not_applicable
from roundoff.vendors.pulsar2.config.enums import PrecisionAnalysisMethod
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.layers.resolving import ResolvedLayers
from roundoff.vendors.pulsar2.layers.table import resolution_table
from roundoff.vendors.pulsar2.tables import LayerConfigRow, layer_config_table, precision_table, quant_config_table

__all__ = ["GOOD_LAYER", "GOOD_OUTPUT", "tell_analysis", "tell_configuration", "tell_resolution"]

GOOD_OUTPUT, GOOD_LAYER = 0.98, 0.999
"""What the vendor's manual asks for: the output's cosine end to end, and every layer's by itself."""

_LISTED = 5


def tell_configuration(log: Log, config: BuildConfig, material: Material, tree: Tree) -> None:
    """Show what inputs are calibrated with, what is asked for layers, and what has no meaning here."""
    for each in not_applicable(config):
        log.warning(f"{each.field} = {each.value} changes nothing here: {each.why}")
    log.table(quant_config_table(material.rows(tree), width=log.width))
    rows = [
        LayerConfigRow(name, precision)
        for entry in config.quant.layer_configs
        for name, precision in _asked(entry)
    ]
    if rows:
        log.table(layer_config_table(rows, width=log.width))
    log.info(f"Transformer optimize level: {config.quant.transformer_opt_level}")


def _asked(entry: object) -> list[tuple[str, str]]:
    from roundoff.vendors.pulsar2.config.schema import LayerConfig
    from roundoff.vendors.pulsar2.layers.entries import Entry

    assert isinstance(entry, LayerConfig)
    described = Entry(0, entry, {})
    names = entry.layers or entry.types or (described.selector,)
    return [(name, described.precision) for name in names]


def tell_resolution(log: Log, resolved: ResolvedLayers, config: BuildConfig) -> None:
    """Show what became of layer_configs."""
    if not resolved.entries:
        return
    log.table(resolution_table(resolved.entries, width=log.width))
    missed = sum(len(entry.nodes) - entry.applied for entry in resolved.entries)
    if missed and not config.quant.highest_mix_precision:
        log.warning(f"layer_configs are not in effect at {counted(missed, 'node')} they name; the table says why")


def tell_analysis(log: Log, analysis: Analysis, tree: Tree) -> None:
    """Show the precision table and what is remarkable in it."""
    method, mode = analysis.method.name, analysis.mode.name
    log.info(f"precision analysis, {method} {mode}, on {counted(len(analysis.samples), 'sample')}")
    log.table(precision_table(analysis.rows, method=method, mode=mode, width=log.width))
    log.info(f"save precision analysis table to [{tree.shown(TABLE)}]")
    log.info(f"save precision analysis graph to [{tree.shown(CHART)}]")
    _tell_judgement(log, analysis)
    for finding in analysis.findings[:_LISTED]:
        log.warning(
            f"Reference and NPUBackend disagree at {finding.operator}: {finding.share:.2%} of the codes of "
            f"{finding.tensor!r} differ by more than one step, which rounding cannot explain"
        )
    if len(analysis.findings) > _LISTED:
        log.warning(f"... and at {counted(len(analysis.findings) - _LISTED, 'more layer')}; see build_context.json")
    for text in analysis.overflows:
        log.warning(f"overflow at {text}")
    for text in analysis.in_float[:_LISTED]:
        log.info(f"ran in float, not in integers: {text}")


def _tell_judgement(log: Log, analysis: Analysis) -> None:
    if analysis.method is PrecisionAnalysisMethod.EndToEnd:
        cosine = analysis.output_cosine
        if cosine is None:
            log.warning("no output can be judged by its cosine")
        elif cosine > GOOD_OUTPUT:
            log.info(f"the worst output has a cosine of {cosine:.5f}, above {GOOD_OUTPUT}: try it on the board")
        else:
            log.warning(
                f"the worst output has a cosine of {cosine:.5f}, not above {GOOD_OUTPUT}: "
                "'roundoff pulsar2 tune' with this configuration goes on"
            )
        return
    low = [row for row in analysis.rows if row.cosine is not None and row.cosine <= GOOD_LAYER]
    if not low:
        log.info(f"all layers have a cosine above {GOOD_LAYER} by themselves; EndToEnd says how they add up")
    else:
        low.sort(key=lambda row: row.cosine or 0.0)
        names = ", ".join(f"{row.operator} ({row.cosine:.5f})" for row in low[:_LISTED])
        more = f" and {len(low) - _LISTED} more" if len(low) > _LISTED else ""
        log.warning(f"{counted(len(low), 'layer')} not above {GOOD_LAYER} by themselves: {names}{more}")
