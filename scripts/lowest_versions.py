"""Print constraints that pin every requirement of pyproject.toml to the lowest version it allows.

Only what users need to run roundoff is pinned; test tools are taken as they come.
"""

import re
import tomllib
from pathlib import Path

_PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_LOWEST = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)\s*>=\s*(?P<version>[0-9.]+)")


def lowest(requirements: list[str]) -> list[str]:
    """Each requirement as ``name==version``; one without a lower limit is an error of the project."""
    found = []
    for text in requirements:
        matched = _LOWEST.match(text)
        if matched is None:
            raise SystemExit(f"{text!r} of pyproject.toml has no lowest version; write name>=version")
        # ``>=2.9`` means 2.9.0, which `~=` would not say and `==2.9.*` would leave open.
        found.append(
            f"{matched['name']}=={matched['version']}{'.0' if matched['version'].count('.') == 0 else ''}"
        )
    return found


if __name__ == "__main__":
    project = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]
    print("\n".join(lowest(project["dependencies"])))
