"""Where two ways from the same original part."""

from collections.abc import Iterator

import numpy as np

from roundoff.analysis.io_check.naming import mean_std_correction
from roundoff.analysis.io_check.origins import Origin
from roundoff.analysis.io_check.readings import layout_change
from roundoff.core.io_check import Correction, Explanation, InputChange
from roundoff.core.tensors import Array

__all__ = ["explain_by_origins"]


def explain_by_origins(training: Origin, deployed: Origin, *, before: float, samples: int) -> Explanation | None:
    """What the deployed side does differently with the original.

    Args:
        training: How training's values came from it.
        deployed: How the deployed side's did.
        before: Largest absolute difference between the two.
        samples: How many samples both were verified on.

    Returns:
        None when one of them is not certain, or when both do the same.
    """
    if not (training.claim.accepted and deployed.claim.accepted):
        return None
    changes = (*_pictures(training, deployed), *_arranged(training, deployed), *_numbers(training, deployed))
    if not changes:
        return None
    rivals = [
        f"{side}: {', '.join(origin.rivals)}"
        for side, origin in (("training", training), ("deployed side", deployed))
        if origin.rivals
    ]
    return Explanation(
        changes=changes,
        exact=training.claim.exact and deployed.claim.exact,
        before=before,
        residual=max(training.claim.residual, deployed.claim.residual),
        residual_rms=max(training.claim.rms, deployed.claim.rms),
        samples=samples,
        alternatives=tuple(rivals),
        notes=("found by following both sides from the original",),
    )


def _pictures(training: Origin, deployed: Origin) -> Iterator[InputChange]:
    one, other = training.pipeline, deployed.pipeline
    if one.decoding != other.decoding:
        text = f"training decodes the original as {one.decoding}, the deployed side as {other.decoding}"
        yield InputChange(
            "colour-matrix", text, Correction("conversion from YUV", str(one.decoding), (("YUV matrix", ""),))
        )
    if one.shaping != other.shaping:
        text = f"in training the original is {one.shaping}, on the deployed side {other.shaping}"
        yield InputChange("placement", text, Correction("size and place", str(one.shaping)))
    if one.resizes and other.resizes and (one.resampling, one.rounded) != (other.resampling, other.rounded):
        ways = [
            f"{each.resampling}"
            + ("" if one.rounded == other.rounded else " in bytes" if each.rounded else " in float")
            for each in (one, other)
        ]
        text = f"training resizes {ways[0]}, the deployed side {ways[1]}"
        yield InputChange("resize", text, Correction("resizing", ways[0]))
    if training.border != deployed.border and None not in (training.border, deployed.border):
        text = f"the border of the letterbox is {deployed.border:.4g}, in training {training.border:.4g}"
        yield InputChange("padding", text, Correction("padding value", f"{training.border:.4g}"))


def _arranged(training: Origin, deployed: Origin) -> Iterator[InputChange]:
    if training.layout != deployed.layout:
        yield layout_change(training.layout, deployed.layout)
    kinds = (
        {change.kind: change for change in training.arranged},
        {change.kind: change for change in deployed.arranged},
    )
    for kind in dict.fromkeys((*kinds[0], *kinds[1])):
        if (kind in kinds[0]) != (kind in kinds[1]):
            yield kinds[0].get(kind) or kinds[1][kind]


def _numbers(training: Origin, deployed: Origin) -> Iterator[InputChange]:
    if training.numbers == deployed.numbers:
        return
    gain, offset = _relative(training, deployed)
    correction = None if gain is None or offset is None else mean_std_correction(gain, offset)
    text = f"training has {training.numbers}, the deployed side {deployed.numbers}"
    yield InputChange("normalization", text, correction)


def _relative(training: Origin, deployed: Origin) -> tuple[Array | None, Array | None]:
    """Training's numbers from the deployed side's, per channel of training."""
    one, other = _by_colour(training), _by_colour(deployed)
    if set(one) != set(other):
        return None, None
    pairs = [(one[colour], other[colour]) for colour in one]
    gain = np.array([a[0] / b[0] for a, b in pairs])
    return gain, np.array([a[1] for a, _ in pairs]) - gain * np.array([b[1] for _, b in pairs])


def _by_colour(origin: Origin) -> dict[int, tuple[float, float]]:
    matrix, offset = origin.claim.linear.matrix, origin.claim.linear.offset
    colours = np.abs(matrix).argmax(axis=1)
    return {int(c): (float(matrix[row, c]), float(offset[row])) for row, c in enumerate(colours)}
