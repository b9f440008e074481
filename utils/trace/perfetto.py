"""A trace in the Trace Event format, which ui.perfetto.dev and chrome://tracing open. Times are microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .events import Event, Trace


def save(trace: Trace, path: str | Path) -> Path:
    """Write `trace` to `path` as JSON and return the path."""
    path = Path(path)
    path.write_text(json.dumps({"traceEvents": rows(trace), "displayTimeUnit": "ms"}))
    return path


def rows(trace: Trace) -> list[dict[str, Any]]:
    """One process a rank, one async slice an operation (they may overlap), one flow arrow a message."""
    out: list[dict[str, Any]] = []
    for rank in range(trace.ranks):
        out.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        out.append({"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}})
    for number, event in enumerate(trace.events):
        end = event.end if event.end is not None else max(trace.seconds, event.start)
        head = {"cat": event.group.name, "name": _name(event), "pid": event.rank, "tid": 0, "id": number}
        out.append({"ph": "b", "ts": event.start * 1e6, "args": _details(event), **head})
        out.append({"ph": "e", "ts": end * 1e6, **head})
    return out + _flows(trace)


def _name(event: Event) -> str:
    if event.collective or event.peer is None:
        return event.op
    return f"{event.op} {'to' if event.op == 'send' else 'from'} {event.peer}"


def _details(event: Event) -> dict[str, Any]:
    return {
        "call": event.call,
        "bytes": event.nbytes,
        "shape": list(event.shape),
        "dtype": event.dtype,
        "line": f"{event.file}:{event.line}",
        "sequence": event.seq,
    }


def _flows(trace: Trace) -> list[dict[str, Any]]:
    from .matching import pair

    pairing = pair(trace.events)
    out = []
    number = 0
    for key, sends in pairing.sends.items():
        for send, recv in zip(sends, pairing.recvs.get(key, []), strict=False):
            if recv.end is None:
                continue
            number += 1
            head = {"cat": "message", "name": f"{send.nbytes} bytes", "id": number, "tid": 0}
            out.append({"ph": "s", "pid": send.rank, "ts": send.start * 1e6, **head})
            out.append({"ph": "f", "bp": "e", "pid": recv.rank, "ts": recv.end * 1e6, **head})
    return out
