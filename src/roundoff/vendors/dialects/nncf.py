"""NNCF: the ignored scope."""

import json

from roundoff.vendors.dialects.settings import (
    Decisions,
    Dialect,
    Written,
    named,
    names_of,
    said_of,
    unsaid_codes,
    unsaid_method,
    unsaid_scales,
    unsaid_weights,
)

__all__ = ["DIALECT"]

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
    missing = []
    if decisions.wide:
        missing.append(f"16-bit integers (float instead): {named(names_of(decisions.wide))}")
    missing += [
        *unsaid_weights(decisions),
        *unsaid_method(decisions, _METHODS, "its own ranges"),
        *unsaid_scales(decisions),
        *unsaid_codes(decisions),
    ]
    files = {
        settings_name: json.dumps(settings, indent=1, ensure_ascii=False) + "\n",
        script: _SCRIPT.format(settings=settings_name),
    }
    use = f"nncf.quantize(model, dataset, **arguments()) with {decisions.model} and arguments() of {script}"
    return Written(files, said_of(decisions), tuple(missing), use)


DIALECT = Dialect("nncf", "IgnoredScope of nncf.quantize", _write)
