"""NNCF: the ignored scope."""

import json

from roundoff.messages.message import english
from roundoff.vendors.dialects.settings import (
    Decisions,
    Dialect,
    Written,
    decision_summary,
    names_of,
    unsupported,
    unsupported_of,
)

_METHODS = {"minmax": "min_max"}

_SCRIPT = '''\
"""The settings beside this file as arguments of nncf.quantize(model, dataset, **arguments())."""

import json
import os
from pathlib import Path

# onnxruntime, which nncf brings along, must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
SETTINGS = json.loads(Path(__file__).with_name("{settings}").read_text(encoding="utf-8"))


def arguments():
    import nncf

    return {{
        "ignored_scope": nncf.IgnoredScope(**SETTINGS["ignored_scope"]),
        "preset": nncf.QuantizationPreset(SETTINGS["preset"]),
    }}
'''


def _write(decisions: Decisions) -> Written:
    settings_name, script = f"{decisions.made.stem}_nncf.json", f"{decisions.made.stem}_nncf.py"
    ignored = names_of(node for node in decisions.nodes if node.in_float or (node.wide and not node.moves))
    settings = {
        "ignored_scope": {"names": ignored, "validate": False},
        "preset": "performance" if decisions.mostly_symmetric("activation") else "mixed",
    }
    missing = (
        *unsupported_of("16-bit integers (float instead): {names}", names_of(decisions.wide)),
        *unsupported(decisions, _METHODS, english("its own ranges")),
    )
    files = {
        settings_name: json.dumps(settings, indent=1, ensure_ascii=False) + "\n",
        script: _SCRIPT.format(settings=settings_name),
    }
    use = english(
        "nncf.quantize(model, dataset, **arguments()) with {model} and arguments() of {script}",
        model=decisions.model,
        script=script,
    )
    return Written(files, decision_summary(decisions), missing, use)


DIALECT = Dialect("nncf", "IgnoredScope of nncf.quantize", _write)
