"""Self-contained commands for whoever else starts jobs: lines for xargs, jobs of Slurm and of Kubernetes.

Each job does its share of the units (``--part i/n``) and finds out from the store what is done: it may be started
again, twice, or never, and the others do not care.
"""

import shlex
from pathlib import Path

from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.suite.content import is_url
from roundoff.suite.matrix import Suite

FORMATS = ("xargs", "slurm", "kubernetes")
"""What jobs are written for."""

_IMAGE = "roundoff:latest"


def job_commands(suite: Suite, *, form: str, jobs: int, file: Path, options: tuple[str, ...] = ()) -> str:
    """The commands that do a suite in so many jobs.

    Args:
        suite: What to do.
        form: For whom; see `FORMATS`.
        jobs: How many.
        file: The suite's file as jobs see it.
        options: Further words for each.

    Raises:
        BadInput: There is no such form, or no such number.
    """
    if form not in FORMATS:
        raise BadInput(english("There are no jobs for {form!r}.", form=form), fix=nearest(form, FORMATS))
    if jobs < 1:
        raise BadInput(english("{jobs} jobs do nothing.", jobs=jobs), fix=english("give 1 or more"))
    jobs = min(jobs, len(suite.units))
    # Jobs begin in other folders.
    store = suite.store if is_url(suite.store) else str(Path(suite.store).absolute())
    words = ["roundoff", "suite", "run", str(file.absolute()), "--store", store, "--workers", "1", *options]
    if form == "xargs":
        lines = [shlex.join([*words, "--part", f"{number}/{jobs}"]) for number in range(1, jobs + 1)]
        return "\n".join(lines) + "\n"
    command = shlex.join(words)
    if form == "slurm":
        return _SLURM.format(name=_plain(suite.name), jobs=jobs, command=command)
    return _KUBERNETES.format(name=_plain(suite.name).lower(), jobs=jobs, command=command, image=_IMAGE)


def _plain(name: str) -> str:
    """A name that schedulers take."""
    return "".join(each if each.isascii() and each.isalnum() else "-" for each in name).strip("-") or "suite"


_SLURM = """\
#!/bin/sh
#SBATCH --job-name=roundoff-{name}
#SBATCH --array=1-{jobs}
#SBATCH --cpus-per-task=1
exec {command} --part "$SLURM_ARRAY_TASK_ID/{jobs}"
"""

_KUBERNETES = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: roundoff-{name}
spec:
  completions: {jobs}
  parallelism: {jobs}
  completionMode: Indexed
  backoffLimit: {jobs}
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: roundoff
          image: {image}
          command:
            - /bin/sh
            - -c
            - >-
              exec {command} --part "$((JOB_COMPLETION_INDEX + 1))/{jobs}"
          resources:
            requests: {{cpu: "1"}}
"""
