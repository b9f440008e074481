"""Servers that start wait for their turn, in the order in which they were asked for.

JupyterHub's own limit turns people away with an error page while many log in at once. Here they see the page of
progress, and as many servers start at a time as the machine has cores for: more would only make each of them slower.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from weakref import WeakSet

PAUSE_S = 0.2


def at_once() -> int:
    """Servers that start at a time: two a core, since a start also waits for the disk and the hub."""
    return 2 * len(os.sched_getaffinity(0))


class Turns:
    """Whose server is starting; `wait` returns when there is room for one more.

    Example:
        turns = Turns(4)
        await turns.wait(spawner, limit_s=600)    # its turn lasts while spawner.pending is "spawn"
    """

    def __init__(self, most: int) -> None:
        self.most, self.door = most, asyncio.Lock()  # whoever comes next stands in its door, the others queue up
        self.starting: WeakSet[Any] = WeakSet()

    async def wait(self, spawner: Any, limit_s: float) -> None:
        """Wait for a spawner's turn. Raises TimeoutError."""
        async with asyncio.timeout(limit_s), self.door:
            self.starting.discard(spawner)
            while sum(one.pending == "spawn" for one in self.starting) >= self.most:
                await asyncio.sleep(PAUSE_S)
            self.starting.add(spawner)
