"""What a serving engine is surrounded by: requests, a recorded trace of arrivals, metrics, pictures of a run.

The engine itself, that is scheduling, paging and attention over pages, is not here: it is what students build.
"""

from __future__ import annotations

from utils.serving.cache import KVBlocks
from utils.serving.metrics import Latency, Served, latency, percentile, summary
from utils.serving.plain import PlainBlocks
from utils.serving.replaying import Replay, Step, replay
from utils.serving.request import Request
from utils.serving.trace import Arrival, make_trace, recorded_trace, to_requests

__all__ = [
    "Arrival", "KVBlocks", "Latency", "PlainBlocks", "Replay", "Request", "Served", "Step", "latency", "make_trace",
    "percentile", "recorded_trace", "replay", "summary", "to_requests",
]  # fmt: skip
