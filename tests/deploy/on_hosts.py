"""Ranks started by hand on hosts, as torchrun would start them, and the same on one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deploy.hosts import Host
from utils.ranks.cells import load
from utils.torchrun_entry import plain
from utils.trace.events import Event, Trace
from utils.trace.saved import load as load_trace

PORT = 29517


def here(target: str) -> Any:
    """What a rank of `launch` does: the same target, in this machine's ranks."""
    return plain(load(target)())


@dataclass
class Started:
    """Ranks on hosts: what they print goes to files, so that nobody waits for a reader."""

    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    said: dict[int, Path] = field(default_factory=dict)

    def finish(self, limit: float) -> list[int]:
        """Wait for all; their exit codes."""
        until = time.monotonic() + limit
        return [process.wait(max(0.1, until - time.monotonic())) for process in self.processes]

    def text(self, rank: int) -> str:
        return self.said[rank].read_text()


def start(
    hosts: list[Host], per_host: int, target: str, folder: Path, *options: str,
    env: dict[str, str] | None = None, of_rank: dict[int, dict[str, str]] | None = None, only: set[int] | None = None,
) -> Started:  # fmt: skip
    """Start `per_host` ranks on each host; `of_rank` has variables for some ranks alone, `only` says which start."""
    started, size = Started(), per_host * len(hosts)
    common = {k: v for k, v in os.environ.items() if k not in ("GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS")}
    common |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(per_host), "MASTER_ADDR": hosts[0].name}
    common |= {"MASTER_PORT": str(PORT), **(env or {})}
    for rank in sorted(only) if only else range(size):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank % per_host), **(of_rank or {}).get(rank, {})}
        said = folder / f"rank{rank}.txt"
        with said.open("w") as file:
            command = [sys.executable, "-m", "utils.torchrun_entry", target, *options]
            host = hosts[rank // per_host]
            started.processes.append(host.start(command, env=common | own, stdout=file))
        started.said[rank] = said
    return started


def run(hosts: list[Host], per_host: int, target: str, folder: Path, limit: float) -> tuple[list[Any], Trace]:
    """Run a target to its end; the values and the trace."""
    out, trace = folder / "values.json", folder / "trace.json"
    started = start(hosts, per_host, target, folder, "--out", str(out), "--trace", str(trace))
    codes = started.finish(limit)
    assert codes == [0] * len(codes), "\n".join(started.text(rank) for rank in range(len(codes)))
    return json.loads(out.read_text()), load_trace(trace)


def said_by(trace: Trace, rank: int) -> list[tuple[Any, ...]]:
    """What a rank did, in order, as far as it must be the same wherever it ran."""
    return [_what(event) for event in trace.of(rank)]


def _what(event: Event) -> tuple[Any, ...]:
    where = (event.line, event.function, event.name)
    size = (event.dtype, event.shape, event.nbytes, event.sent, event.received)
    return (event.op, event.call, event.group.ranks, event.peer, event.tag, *size, event.reduce, event.extra, where)


def crossing(trace: Trace, per_host: int, host: int) -> int:
    """Bytes of messages that ranks of a host sent to ranks of another."""
    events = [event for event in trace if event.op == "send" and event.rank // per_host == host]
    return sum(event.sent for event in events if event.peer is not None and event.peer // per_host != host)
