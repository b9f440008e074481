"""What the tests in this folder need, said in one sentence where it is missing: `python -m tests.deploy.needs`."""

from __future__ import annotations

import shutil
import sys

from autograder.course import REPO
from autograder.sandbox import why_not
from tests.deploy import a_server, slurm_here

HUB, KUBERNETES = REPO / ".venv-hub" / ".installed", REPO / ".venv-k8s" / ".installed"


def missing() -> list[str]:
    """What is missing, each with how to get it."""
    lacks = [sentence.rstrip(".") for sentence in (slurm_here.missing(), a_server.needed(), why_not("bubblewrap"))]
    if not shutil.which("kubectl"):
        lacks.append("kubectl is not installed: apt install kubernetes-client")
    lacks += [f"{path.parent.name} is not here: make test-deploy makes it" for path in (HUB, KUBERNETES)
              if not path.exists()]  # fmt: skip
    return [sentence for sentence in lacks if sentence]


if __name__ == "__main__":
    if lacks := missing():
        sys.exit(f"make test-deploy needs more: {'; '.join(lacks)}.")
