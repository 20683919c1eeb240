"""What a search delivers is what others read."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from roundoff.api.call import Call
from roundoff.api.subject import SubjectOptions, open_subject
from roundoff.core.plan import Recipe, Step
from roundoff.core.quantizers import quantize
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.messages.message import verbatim
from roundoff.quantize.plan_file import load_plan
from roundoff.quantize.recipes import BuildSettings, RecipeBuilder
from roundoff.quantize.steps import StepContext, StepLibrary
from roundoff.quantize.targets.files import load_target
from roundoff.run.session import open_session
from roundoff.search.result import Trial
from roundoff.search.store import BEST_NAME, Delivery, discard_folder, open_folder
from tests.models import conv_net, loaded
from tests.search.test_judges import Images

TARGET = load_target("generic-int8")
TRIAL = Trial(Recipe(), verbatim("plain"), True, 1.0, 0.0, 1.0, 1, whole=True)


class Rounding(StepLibrary):
    """A transform that changes nothing, and a correction that moves every code of the weights by one."""

    def transforms(self) -> tuple[str, ...]:
        return ("same",)

    def corrections(self) -> tuple[str, ...]:
        return ("round",)

    def transform(self, step: Step, model: Model, context: StepContext) -> Any:
        return SimpleNamespace(model=model, taken=(), notes=(), ranges={})

    def correct(self, step: Step, quantized: QuantizedModel, context: StepContext) -> Any:
        weights = Weights(quantized.float_model)
        moved = []
        for each in quantized.quantizers:
            if each.kind == "weight":
                codes = quantize(weights[each.tensor], each.params, each.spec)
                each = replace(each, codes=np.where(codes > 0, codes - 1, codes).astype(codes.dtype))  # noqa: PLW2901
            moved.append(each)
        return SimpleNamespace(model=replace(quantized, quantizers=tuple(moved)), taken=(), notes=())


def opened(folder: Path, *, resume: bool = False, force: bool = False) -> bool:
    with open_folder(folder, resume=resume, force=force) as again:
        return again


def test_the_best_so_far_is_exchanged_and_the_answer_can_be_read(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    np.save(tmp_path / "data.npy", Images().values[:4, 0])
    builder = RecipeBuilder(model, Images(), TARGET, making=BuildSettings(library=Rounding()))
    folder = tmp_path / "out"
    assert not opened(folder)
    delivery = Delivery(folder, "m", "model.onnx", "0" * 64, TARGET, "1")
    for recipe in (Recipe(), Recipe(method="mse")):
        delivery.best_so_far(builder.build(recipe), replace(TRIAL, recipe=recipe))
        assert load_plan(folder / BEST_NAME).method == (recipe.method or "minmax")
    recipe = Recipe(transforms=(Step("same"),), corrections=(Step("round"),))
    written = delivery.final(builder.build(recipe), {"run.json": "{}\n"})
    assert all(path.is_file() for path in written)
    assert not (folder / BEST_NAME).exists()
    saved = load_plan(folder)
    assert saved.files["float"] == "m_float_model.onnx"
    # Whoever reads it beside its float model gets the codes that were moved, too.
    call = Call("layers", {"quantized": folder, "data": tmp_path / "data.npy"}, SubjectOptions)
    read = open_subject(call, folder / "m_float_model.onnx").quantized
    feed = Images().feed(0)
    ours, theirs, plain = (
        open_session(switch_on(each.float_model, each.quantizers)).run(feed)[0]
        for each in (read, builder.build(recipe).quantized, builder.build(Recipe()).quantized)
    )
    assert np.array_equal(ours, theirs)
    assert not np.array_equal(ours, plain)


def test_folders_are_opened_with_care(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "mine").write_text("x")
    with pytest.raises(BadInput, match="holds no search"):
        opened(folder, resume=True)
    (folder / "mine").unlink()
    assert not opened(folder, resume=True)
    with pytest.raises(BadInput, match="already holds a search"):
        opened(folder)
    discard_folder(folder)
    assert not folder.exists()


@pytest.mark.parametrize("second", [{"resume": True}, {"force": True}, {}])
def test_two_searches_do_not_work_in_one_folder(tmp_path: Path, second: dict[str, bool]) -> None:
    folder = tmp_path / "out"
    with open_folder(folder, resume=False, force=False):
        (folder / "best.partial-12ab34cd").mkdir()
        for _ in range(2):
            with pytest.raises(BadInput, match="out is in use by another run"):
                opened(folder, **second)
        # What the first one is about to exchange is still there.
        assert (folder / "best.partial-12ab34cd").is_dir()
    assert opened(folder, resume=True) is False
    assert not (folder / "best.partial-12ab34cd").exists()


def test_a_search_begun_anew_keeps_others_away(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    opened(folder)
    with open_folder(folder, resume=False, force=True), pytest.raises(BadInput, match="in use by another run"):
        opened(folder, force=True)
