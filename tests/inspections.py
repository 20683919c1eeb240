"""Results of looking at tensors, made by hand."""

from dataclasses import replace

import numpy as np

from roundoff.messages.message import verbatim
from roundoff.studies.distribution.result import (
    Bins,
    ChannelBox,
    ChannelReport,
    ChannelSpread,
    DistributionReport,
    OutlierReport,
    OutlierRow,
    QuantizerFacts,
    TensorDistribution,
    ValueSummary,
)
from roundoff.studies.samples.result import OutputScore, SampleScore, WorstSamples

HOSTILE = "=cmd|'/c calc'!A1 $x$ <b>&\"\x00[red]\n名前" + "long/" * 40


def values(centre: float = 0.0, *, bins: int = 30) -> ValueSummary:
    """A bell, as a summary."""
    edges = np.linspace(centre - 3, centre + 3, bins + 1)
    heights = 1000 * np.exp(-np.square((edges[1:] + edges[:-1]) / 2 - centre))
    return ValueSummary(
        count=20_000,
        nonfinite=3,
        zeros=7,
        minimum=centre - 3,
        maximum=centre + 2.5,
        mean=centre,
        std=0.7,
        skewness=0.1,
        excess_kurtosis=-0.2,
        quantiles={"0.5": centre},
        edge_share=0.001,
        central_range=0.8,
        bins=Bins(float(edges[0]), float(edges[1] - edges[0]), tuple(heights.tolist())),
    )


def distribution(name: str = "conv1", *, quantized: bool = True) -> TensorDistribution:
    """One distribution; with all that a node can have where it is quantized."""
    facts = QuantizerFacts(
        name="q",
        dtype="s8",
        axis=None,
        scales=(0.02, 0.02),
        scale_ratio=1.0,
        zero_point=0,
        low=-2.56,
        high=2.54,
        widest=(-2.56, 2.54),
        clipped_low=0.002,
        clipped_high=0.0,
        zeroed=0.01,
        levels_used=200,
        levels=256,
        entropy_bits=6.5,
        sqnr_db=38.25,
    )
    return TensorDistribution(
        name=name,
        kind="node",
        tensor=f"{name}_out",
        node=name,
        op_type="Conv",
        shape=(1, 8, 4, 4),
        before=values(),
        after=values() if quantized else None,
        difference=values(bins=5) if quantized else None,
        quantizer=facts if quantized else None,
        peaks=(0.01,),
        resolution=1 / 256,
        suits=not quantized,
        advice=verbatim("0.2 % of the values are clipped: do something" if quantized else "one peak"),
    )


def distribution_report(*names: str) -> DistributionReport:
    """Distributions of these names."""
    return DistributionReport(
        "m.onnx", ("s0", "s1"), tuple(map(distribution, names)), notes=(verbatim("[a] note"),)
    )


def channel_spread(name: str = "conv1", *, channels: int = 8, uneven: bool = False) -> ChannelSpread:
    """The channels of a tensor; every third has few levels, and the first is zero."""
    scales = [0.0, *(100.0 if uneven and index == 1 else 1.0 / (index % 3 + 1) for index in range(1, channels))]
    boxes = tuple(
        ChannelBox(
            channel=index,
            low=-scale,
            p01=-0.9 * scale,
            p25=-0.5 * scale,
            median=0.1 * scale,
            p75=0.5 * scale,
            p99=0.8 * scale,
            high=1.2 * scale,
            mean=0.05 * scale,
            levels=3.5 if index % 3 == 0 else 200.0,
            own_levels=255.0,
        )
        for index, scale in enumerate(scales)
    )
    return ChannelSpread(
        name=name,
        kind="node",
        tensor=f"{name}_out",
        node=name,
        op_type="Conv",
        shape=(1, channels, 4, 4),
        axis=1,
        dtype="u8",
        assumed=True,
        own_scales=False,
        step=0.01,
        boxes=boxes,
        live=channels - 1,
        range_ratio=200.0 if uneven else 2.0,
        below={"16": channels // 3, "4": channels // 3, "1": 0},
        gain_db=5.25,
        risk="high",
        resolution=0.125,
        advice=verbatim("many channels have fewer than 16 levels"),
    )


def channel_report(*names: str) -> ChannelReport:
    """Channels of tensors of these names."""
    return ChannelReport("m.onnx", ("s0",), tuple(map(channel_spread, names)), notes=(verbatim("[a] note"),))


def outlier_report(*names: str) -> OutlierReport:
    """A row for each of these names, the later ones with more outliers."""
    row = OutlierRow(
        order=0,
        tensor="",
        node="n",
        op_type="Conv",
        shape=(1, 200, 4, 4),
        axis=1,
        quantized="u8",
        channels=200,
        largest=64.0,
        largest_channel=3,
        median=2.5,
        sparse=1,
        at_least={},
        nonfinite=0,
    )
    rows = tuple(
        replace(
            row,
            order=order,
            tensor=name,
            at_least={str(level): max(0, order * 7 % 150 - level) for level in (3, 4, 5, 6)},
        )
        for order, name in enumerate(names)
    )
    return OutlierReport(
        "m.onnx",
        ("s0", "s1"),
        2.0,
        rows,
        {"ids": verbatim("its values are of the type int64")},
        (verbatim("[a] note"),),
    )


def worst_samples(*names: str, outputs: int = 1) -> WorstSamples:
    """A ranking of samples of these names; the first has no score."""
    ranked = []
    for rank, name in enumerate(names, start=1):
        score = None if rank == 1 else 10.0 + rank
        scores = {} if score is None else {"sqnr_db": score, "cosine": 0.9}
        found = tuple(
            OutputScore(
                f"out{place}", "nonfinite" if score is None else "ok", scores, rows=1, moved_top=int(rank == 2)
            )
            for place in range(outputs)
        )
        ranked.append(SampleScore(rank, name, rank + 100, score, found))
    return WorstSamples(
        reference="m.onnx",
        data="data",
        metrics=("sqnr_db", "cosine"),
        higher_is_better=True,
        samples=tuple(ranked),
        median=15.0,
        unscored=1,
        moved_top=1,
        notes=(verbatim("[a] note"),),
    )
