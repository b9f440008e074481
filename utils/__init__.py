"""What students import: `launch` runs a function on several ranks, `check` verifies what came back.

    from utils import launch

In a notebook, importing this starts the fork server in the background and adds the `%%ranks` cell magic.
"""

from __future__ import annotations

import sys as _sys

from .ranks.api import launch
from .ranks.errors import (
    BadLaunch,
    Deadlock,
    LaunchError,
    LaunchInterrupted,
    LaunchTimeout,
    Mismatch,
    RankFailed,
)
from .ranks.run import Run

__all__ = [
    "BadLaunch", "Deadlock", "LaunchError", "LaunchInterrupted", "LaunchTimeout", "Mismatch", "RankFailed", "Run",
    "check", "launch",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """`check` is loaded when it is asked for: it imports torch, which a command line tool may not need."""
    if name == "check":
        import importlib

        return importlib.import_module(".check", __name__)
    raise AttributeError(f"module 'utils' has no attribute {name!r}")


if "ipykernel" in _sys.modules:
    from .ranks import magics as _magics

    _magics.load()
