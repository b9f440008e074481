"""Running Python as an ordinary user on a machine where only root can read the interpreter.

In a mount namespace of its own, folders that others may not enter are covered with empty ones in which only the
interpreter and the project appear, where they always were; then the user changes to one without any privilege.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path

from autograder.sandbox.base import REPO

USER = 65534


def as_ordinary_user(home: Path, words: list[str]) -> list[str]:
    """The command that runs `python WORDS` as user 65534, whose home is `home`, a folder that others can reach."""
    os.chown(home, USER, USER)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(home)}
    python = [sys.executable, *words]
    run = ["env", "-i", *(f"{k}={v}" for k, v in env.items()), *python]
    drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    script = "set -e\n" + "\n".join(_opened()) + "\nexec " + shlex.join([*drop, *run])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]


def _opened() -> list[str]:
    """Shell commands that let everybody reach the interpreter and the project, and nothing more."""
    lines = []
    for wanted in {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), REPO}:
        closed = [p for p in wanted.parents if not p.stat().st_mode & stat.S_IXOTH]
        if closed:
            top, kept = shlex.quote(str(closed[-1])), shlex.quote(str(wanted))
            lines += [
                f"mount --bind {kept} /mnt", f"mount -t tmpfs -o mode=755 tmpfs {top}", f"mkdir -p {kept}",
                f"mount --move /mnt {kept}",
            ]  # fmt: skip
    return lines
