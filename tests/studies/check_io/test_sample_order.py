"""Samples that are all there, in another order."""

import numpy as np
import pytest

from roundoff.studies.check_io.study import StageValues, check_io


@pytest.mark.parametrize("order", [[3, 1, 2, 0, 4], [0, 0, 1, 1, 2]])
@pytest.mark.parametrize("batch", [True, False])
def test_samples_in_another_order_are_named(order: list[int], batch: bool) -> None:
    images = np.random.default_rng(3).normal(size=(5, 3, 8, 8)).astype(np.float32)
    sides = [(each,) if batch else tuple(each[:, None]) for each in (images, images[order])]
    names = ("all",) if batch else tuple(map(str, range(5)))
    [stage] = check_io({"preprocessed": StageValues(names, sides[0], sides[1])}).stages
    assert (stage.passed, stage.samples) == (False, 5)
    found = stage.explanation
    assert found is not None
    assert (found.kinds, found.exact, found.residual) == (("row-order",), True, 0)
    moved = ", ".join(f"{at}->{place}" for at, place in enumerate(order) if at != place)
    assert str(found.changes[0].text).endswith(moved)


def test_other_pictures_are_not_called_reordered() -> None:
    rng = np.random.default_rng(4)
    one, other = ((rng.normal(size=(5, 3, 8, 8)).astype(np.float32),) for _ in range(2))
    [stage] = check_io({"preprocessed": StageValues(("all",), one, other)}).stages
    assert stage.explanation is None
