"""What can go wrong in a launch, as one family of errors whose text is the report a reader needs.

A notebook shows the text alone: the frames between the cell and the rank that failed are ours and teach nothing.
"""

from __future__ import annotations


class LaunchError(RuntimeError):
    """A launch that could not give values; `str(error)` is the whole report."""

    def _render_traceback_(self) -> list[str]:
        """IPython calls this instead of printing frames of `utils` above the report."""
        return [f"{type(self).__name__}: {self}"]


class BadLaunch(LaunchError, ValueError):
    """The call itself cannot work: a bad argument, something that cannot be shipped, a value that cannot return."""


class RankFailed(LaunchError):
    """A rank raised, exited or was killed. `rank` is the first to fail, `traceback` its own traceback (or None)."""

    def __init__(self, report: str, rank: int | None = None, traceback: str | None = None) -> None:
        super().__init__(report)
        self.rank, self.traceback = rank, traceback


class Deadlock(LaunchError):
    """Every rank waits and the journal proves that no wait can end."""


class LaunchTimeout(LaunchError):
    """The time limit passed; the report says where each rank was."""


class Mismatch(LaunchError):
    """Different collectives, or sizes or dtypes that do not fit: the data is wrong even where gloo is silent."""


class LaunchInterrupted(LaunchError, KeyboardInterrupt):
    """The launch was interrupted from the keyboard; the report says where each rank was."""
