"""Several models of one run: a folder of rules, and the run's own tree of time, device, model, number and step."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.running import Request
from roundoff.vendors.ascend.scenarios import RuleFiles

__all__ = ["batch_requests"]

_TREE = "time/device/model/model_id/step"


def batch_requests(request: Request, rules: Path) -> list[Request]:
    """One request for every model of the run that a rule is about.

    Args:
        request: What was asked for; its dumps are those of a whole run.
        rules: A folder of JSON files of offline models.

    Raises:
        Refused: The dumps are not those of a run, or no rule is about any of its models.
    """
    if not request.mine.resolve().name.isdigit():
        what = f"The {request.mine} does not match the path format, which is {_TREE}."
        raise Refused(what, code=Code.PATH, fix="give the folder that is named by its time")
    files = {name: path for path in sorted(rules.glob("*.json")) if (name := _model_name(path))}
    found = [
        replace(
            request,
            mine=step,
            files=RuleFiles(files[model.name], request.files.quantized, request.files.unfused),
            prefix=f"{device.name}_{model.name}_{step.name}_",
        )
        for device, model, step in _steps(request.mine)
        if model.name in files
    ]
    if not found:
        what = f"None of the {len(files)} rules in {rules} is about a model in {request.mine}."
        raise Refused(what, code=Code.NO_DUMP, fix=f"check that the dumps lie in {_TREE}")
    return found


def _steps(run: Path) -> Iterator[tuple[Path, Path, Path]]:
    """Device, model and last step of all models in a run."""
    for device in _folders(run):
        for model in _folders(device):
            for number in _folders(model):
                steps = _folders(number)
                if steps:
                    yield device, model, max(steps, key=lambda step: step.name)


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir())


def _model_name(path: Path) -> str:
    try:
        content = json.loads(path.read_bytes())
        return str(content["graph"][0]["name"])
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return ""
