"""What the browser test needs, said in one sentence where something is missing: `python -m tests.hub.needs`."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser() -> str:
    """The path of a Chromium; "" where there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), "")


def missing() -> list[str]:
    """What is missing, each with how to get it."""
    packages = ("jupyterhub", "playwright", "nbgitpuller", "jupyter_resource_usage")
    lacks = [f"the package {name} (remove .venv-hub and run make again)" for name in packages if not find_spec(name)]
    programs = {"bwrap": "bubblewrap", "git": "git", "node": "nodejs npm"}
    lacks += [f"{name} (apt install {package})" for name, package in programs.items() if not shutil.which(name)]
    if not browser():
        lacks.append("a browser (apt install chromium fonts-wqy-microhei)")
    if not (Path(sys.prefix) / "node" / "node_modules" / ".bin" / "configurable-http-proxy").exists():
        lacks.append("the hub's proxy (remove .venv-hub and run make again)")
    return lacks


if __name__ == "__main__":
    if lacks := missing():
        sys.exit(f"make test-hub needs {', '.join(lacks)}.")
