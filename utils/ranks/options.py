"""What a launch can be asked for, checked in sentences."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import rank as rank_module
from .errors import BadLaunch

DEFAULT_TIMEOUT = 60.0
MOST_RANKS = 256
EXAMPLES = {"delay": "{1: 0.02}", "kwargs": '{"lr": 0.1}'}


@dataclass(frozen=True)
class Options:
    """The options of `launch`, which says what each is."""

    ranks: int | None
    timeout: float | None = DEFAULT_TIMEOUT
    trace: bool = True
    backend: str = "auto"
    device: str = "auto"
    seed: int = 0
    show: bool | str = True
    debug: int | None = None
    delay: Mapping[int, float] | None = None
    kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("delay", "kwargs"):
            given = getattr(self, name)
            if not isinstance(given, Mapping | None):
                raise BadLaunch(f"{name}={given!r}: give a dictionary, such as {EXAMPLES[name]}.")
            object.__setattr__(self, name, dict(given or {}))

    def check(self) -> None:
        """Refuse what cannot work, in a sentence."""
        if rank_module.IN_RANK:
            raise BadLaunch(
                "launch was called inside a rank; launch ranks from the notebook, and use only torch.distributed in "
                "them."
            )
        if sys.platform == "win32":
            raise BadLaunch(
                "Windows cannot fork ranks. Open the course in WSL2 (Windows Subsystem for Linux), where it works."
            )
        ranks, timeout = self.ranks, self.timeout
        if ranks is not None and (isinstance(ranks, bool) or not isinstance(ranks, int)):
            raise BadLaunch(f"ranks must be a whole number or None, but it is {ranks!r}.")
        if ranks is not None and not 1 <= ranks <= MOST_RANKS:
            raise BadLaunch(f"ranks={ranks}: a launch needs between 1 and {MOST_RANKS} ranks.")
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise BadLaunch(f"timeout={timeout!r}: give seconds above 0, or None for no limit.")
        for name, r in [("debug", self.debug), *(("delay", d) for d in self.delay)]:
            if r is not None and not (isinstance(r, int) and 0 <= r < (ranks or 1)):
                raise BadLaunch(f"{name} names rank {r!r}, but the ranks are 0 to {(ranks or 1) - 1}.")

    def limit(self) -> float | None:
        """The time limit in seconds, which UTILS_TIMEOUT in the environment caps; None for none."""
        if self.debug is not None:
            return None
        cap = os.environ.get("UTILS_TIMEOUT")
        if not cap:
            return self.timeout
        return float(cap) if self.timeout is None else min(self.timeout, float(cap))
