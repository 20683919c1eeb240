"""Commands that do a suite elsewhere: a line per job for xargs, an array job for Slurm, a Job for Kubernetes.

Each job does its share of the units (``--part i/n``) and finds out from the store what is done: it may be started
again, twice, or never, and the others do not care.
"""

import json
import os
import shlex
from pathlib import Path

from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.suite.content import is_url
from roundoff.suite.matrix import Suite

FORMATS = ("xargs", "slurm", "kubernetes")
"""What jobs are written for."""

_IMAGE = "roundoff:latest"
# Names of jobs are parts of names of hosts.
_NAME_LENGTH = 52


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
    part = f'exec {command} --part "$((JOB_COMPLETION_INDEX + 1))/{jobs}"'
    # A string of JSON is one of YAML.
    about = {"name": _plain(suite.name).lower(), "jobs": jobs, "image": _IMAGE}
    return _KUBERNETES.format(**about, command=json.dumps(part), mounts=_mounts(suite, file, store))


def _mounts(suite: Suite, file: Path, store: str) -> str:
    """The folders that jobs must see where they are here: the suite's, those of its files, and the store."""
    named = [str(file), *(path for unit in suite.units for path, mark in unit.places if mark)]
    folders = {Path(os.path.normpath(Path(each).absolute())).parent for each in named}
    folders |= set() if is_url(store) else {Path(os.path.normpath(store))}
    top = sorted(each for each in folders if not folders & set(each.parents))
    rows = [_MOUNT.format(path=json.dumps(str(each)), below=json.dumps(str(each).lstrip("/"))) for each in top]
    return "".join(rows)


def _plain(name: str) -> str:
    """A name that schedulers take."""
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)
    return plain[:_NAME_LENGTH].strip("-") or "suite"


_SLURM = """\
#!/bin/sh
#SBATCH --job-name=roundoff-{name}
#SBATCH --array=1-{jobs}
#SBATCH --cpus-per-task=1
exec {command} --part "$SLURM_ARRAY_TASK_ID/{jobs}"
"""

_MOUNT = """
            - {{name: suite, mountPath: {path}, subPath: {below}}}"""

_KUBERNETES = """\
# The claim 'roundoff' is a disk that holds these folders, under the same names; 'kubectl get pvc' shows yours.
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
          command: [/bin/sh, -c, {command}]
          resources:
            requests: {{cpu: "1"}}
          volumeMounts:{mounts}
      volumes:
        - name: suite
          persistentVolumeClaim: {{claimName: roundoff}}
"""
