"""Examples in the documentation do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
# An example that works on the demo's model needs nothing that a reader would have to bring.
COMPLETE = "import demo"
FROM_PYTHON = "## From Python\n"


def _complete_examples() -> list[tuple[str, str]]:
    pages = sorted(DOCS.rglob("*.md"))
    blocks = [
        (str(page.relative_to(DOCS)), block) for page in pages for block in BLOCK.findall(page.read_text("utf-8"))
    ]
    return [(name, block) for name, block in blocks if COMPLETE in block]


EXAMPLES = _complete_examples()


@pytest.mark.parametrize(("page", "example"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_an_example_on_the_demo_runs(page: str, example: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"
    assert done.stdout


def test_every_page_that_speaks_of_python_has_such_an_example() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if FROM_PYTHON in page.read_text("utf-8")}
    assert len(pages) > 10
    # Target files, nets of Caffe and dumps of a chip are the reader's own; the machine is no model.
    of_the_reader = {f"reference/{name}.md" for name in ("targets", "convert", "ascend", "self-check")}
    assert pages - of_the_reader <= {page for page, _ in EXAMPLES}
