"""What a launch gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..trace.events import Trace


@dataclass(frozen=True)
class Run:
    """The result of a launch; every list has one entry a rank (one in all for `ranks=None`).

    values: what the function returned; stdout, stderr: what the rank printed; peak_bytes: peak resident bytes above
    the start of the function; seconds: from the first rank's start to the last one's end; trace: see `utils.trace`;
    notes: things worth knowing, such as a send that nobody received; device, backend: what the ranks ran on.
    """

    values: list[Any]
    stdout: list[str]
    stderr: list[str]
    peak_bytes: list[int]
    seconds: float
    trace: Trace
    backend: str
    device: str
    notes: list[str] = field(default_factory=list)

    @property
    def value(self) -> Any:
        """The value of rank 0, or of the one process of `ranks=None`."""
        return self.values[0]

    def __repr__(self) -> str:
        return (
            f"Run({len(self.values)} ranks, {self.backend}, {self.seconds:.3f} s, {len(self.trace.events)} operations)"
        )
