"""A trace as a file, to look at on another machine than the one that ran: JSON, with the fields of `Event`.

    trace = load("trace.json")
    trace.bytes_sent(0), trace.peers(0)
    trace.plot()
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .events import Event, Group, Trace

FORMAT = 1


def event_to_plain(event: Event) -> dict[str, Any]:
    """An event as JSON can hold it."""
    return asdict(event)


def event_from_plain(fields: dict[str, Any]) -> Event:
    """The event that `event_to_plain` wrote."""
    group = fields["group"]
    known = {"group": Group(group["key"], group["name"], tuple(group["ranks"])), "shape": tuple(fields["shape"])}
    return Event(**{**fields, **known})


def save(trace: Trace, path: str | Path) -> Path:
    """Write a trace to a file; returns its path."""
    path = Path(path)
    events = [event_to_plain(event) for event in trace.events]
    whole = {"format": FORMAT, "ranks": trace.ranks, "seconds": trace.seconds, "complete": trace.complete}
    path.write_text(json.dumps({**whole, "events": events}), encoding="utf-8")
    return path


def load(path: str | Path) -> Trace:
    """The trace in a file. Raises ValueError where it is not one."""
    whole = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ValueError(f"{path} is not a trace of this version (format {FORMAT}): write it anew.")
    events = [event_from_plain(fields) for fields in whole["events"]]
    return Trace(whole["ranks"], events, whole["seconds"], whole["complete"])
