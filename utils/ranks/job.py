"""What the kernel sends a rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One rank's part of a launch. `world_size=None`: a fresh process without a process group."""

    rank: int
    world_size: int | None
    payload: bytes
    sources: dict[str, str]
    backend: str
    device: str
    store: str
    limit: float
    trace: bool
    debug: bool
    delay: float
    seed: int
    cwd: str
    path: list[str]
    env: dict[str, str]
