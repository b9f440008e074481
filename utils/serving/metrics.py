"""What users feel and what owners pay for: TTFT, TPOT, the gaps between tokens, throughput.

All times are on one clock, in whatever unit that clock has. Left out: goodput under a target for each request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Latency:
    """One request's.

    ttft: time to first token, counted from the arrival (so waiting is in it); tpot: time per output token after the
    first, a mean, None where there is only one; gaps: inter-token latencies, one for each token after the first.
    """

    ttft: float
    tpot: float | None
    gaps: tuple[float, ...]


@dataclass(frozen=True)
class Served:
    """A whole run: tokens a unit of time from the first arrival to the last token, and percentiles of latencies."""

    throughput: float
    ttft_p50: float
    ttft_p95: float
    tpot_p50: float
    gap_p95: float
    gap_max: float


def latency(arrival: float, times: Sequence[float]) -> Latency:
    """Latencies of one request from its arrival and the times of its tokens (at least one, ascending).

    >>> latency(1.0, [3.0, 4.0, 6.0])
    Latency(ttft=2.0, tpot=1.5, gaps=(1.0, 2.0))
    """
    if not times or any(b < a for a, b in pairwise([arrival, *times])):
        raise ValueError(f"token times {list(times)} must be ascending, after the arrival at {arrival}, at least one")
    gaps = tuple(b - a for a, b in pairwise(times))
    return Latency(times[0] - arrival, sum(gaps) / len(gaps) if gaps else None, gaps)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` per cent of them (nearest rank); NaN where there are none.

    >>> percentile([4, 1, 3, 2], 50), percentile([4, 1, 3, 2], 95)
    (2, 4)
    """
    ranked = sorted(values)
    return ranked[max(0, math.ceil(percent / 100 * len(ranked)) - 1)] if ranked else math.nan


def summary(arrivals: Mapping[int, float], times: Mapping[int, Sequence[float]]) -> Served:
    """A run's figures from each request's arrival and the times of its tokens, by id; who got no token is left out.

    >>> summary({0: 0.0, 1: 1.0}, {0: [1.0, 2.0], 1: [3.0, 4.0]}).throughput
    1.0
    """
    served = {name: own for name, own in times.items() if own}
    if not served:
        raise ValueError("no request has a token yet")
    each = [latency(arrivals[name], own) for name, own in served.items()]
    gaps = [gap for one in each for gap in one.gaps]
    first = min(arrivals[name] for name in served)
    long = max(own[-1] for own in served.values()) - first
    tokens = sum(len(own) for own in served.values())
    return Served(
        throughput=tokens / long if long else math.inf,
        ttft_p50=percentile([one.ttft for one in each], 50),
        ttft_p95=percentile([one.ttft for one in each], 95),
        tpot_p50=percentile([one.tpot for one in each if one.tpot is not None], 50),
        gap_p95=percentile(gaps, 95),
        gap_max=max(gaps, default=math.nan),
    )
