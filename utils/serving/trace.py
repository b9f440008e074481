"""A recorded trace of requests, and what made it: Poisson arrivals, log-normal lengths, some prompts that begin alike.

Real traces look like this: gaps between arrivals are exponential, most outputs are short and a few are very long (a
log-normal with sigma = 1), and many prompts begin with the same instructions. Prompts are pieces of the standard
library's source, named by where they begin. The file `recorded.json` is `make_trace(seed=0)`, kept so that a run can
be repeated when the generator changes. Left out: users who wait for an answer before they ask on, and days and nights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random

from utils.models import stdlib_bytes
from utils.serving.request import Request

RECORDED = Path(__file__).with_name("recorded.json")
SYSTEM_START, SYSTEM_LEN = 0, 24  # where the shared instructions stand in the text, and how long they are


@dataclass(frozen=True)
class Arrival:
    """One request of a trace.

    tick: when it comes, in ticks (a tick is whatever one decode step takes on the machine that replays the trace);
    start: where in the text its own part of the prompt begins; prompt_len: bytes of that part; system: whether the
    shared instructions stand before it; max_new: tokens to generate.

    >>> Arrival(tick=0.0, start=10, prompt_len=5, system=False, max_new=3).spans
    ((10, 5),)
    """

    tick: float
    start: int
    prompt_len: int
    system: bool
    max_new: int

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The pieces of text that make up the prompt: (start, length) of each."""
        own = (self.start, self.prompt_len)
        return ((SYSTEM_START, SYSTEM_LEN), own) if self.system else (own,)


def make_trace(
    seed: int = 0,
    requests: int = 96,
    *,
    per_tick: float = 1.0,
    median_new: float = 12.0,
    sigma: float = 1.0,
    most_new: int = 128,
    median_prompt: float = 12.0,
    most_prompt: int = 64,
    text_len: int = 100_000,
) -> list[Arrival]:
    """Requests in order of arrival; the same arguments always give the same.

    per_tick: mean arrivals in a tick (a Poisson process); median_new, sigma: of the log-normal output lengths, which
    are cut at `most_new`; prompts likewise, with the same sigma. Half the requests begin with the shared instructions.

    >>> [arrival.max_new for arrival in make_trace(requests=3)]
    [5, 28, 4]
    """
    random, tick, made = Random(seed), 0.0, []
    for _ in range(requests):
        tick += random.expovariate(per_tick)
        prompt_len = _length(random, median_prompt, sigma, most_prompt)
        max_new = _length(random, median_new, sigma, most_new)
        start, system = random.randrange(text_len), random.random() < 0.5
        made.append(Arrival(round(tick, 3), start, prompt_len, system, max_new))
    return made


def _length(random: Random, median: float, sigma: float, most: int) -> int:
    return min(most, max(1, round(median * random.lognormvariate(0.0, sigma))))


@cache
def recorded_trace() -> tuple[Arrival, ...]:
    """The recorded trace, in order of arrival.

    >>> recorded_trace() == tuple(make_trace(seed=0))
    True
    """
    return tuple(Arrival(**entry) for entry in json.loads(RECORDED.read_text(encoding="utf-8")))


def write_trace(trace: list[Arrival], path: Path = RECORDED) -> None:
    """Keep a trace as a file, one request a line.

    >>> write_trace(make_trace(seed=0))   # makes recorded.json anew; doctest: +SKIP
    """
    lines = [json.dumps(asdict(arrival)) for arrival in trace]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def to_requests(trace: Sequence[Arrival]) -> list[Request]:
    """The requests of a trace, numbered from 0, with bytes of the standard library's source as prompts.

    >>> [bytes(request.prompt) for request in to_requests([Arrival(0.0, 4, 6, False, 2)])]   # doctest: +SKIP
    [b'Record']
    """
    text = stdlib_bytes(200_000).tolist()
    prompts = [[token for start, long in one.spans for token in text[start : start + long]] for one in trace]
    return [
        Request(id=number, prompt=prompt, max_new=one.max_new, arrival=one.tick)
        for number, (one, prompt) in enumerate(zip(trace, prompts, strict=True))
    ]
