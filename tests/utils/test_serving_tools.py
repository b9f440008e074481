"""Requests, the recorded trace, replays and metrics; the checks of schedulers and block managers say what is wrong."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest

from utils.checks import serving
from utils.checks.failed import CheckFailed
from utils.models import DecoderConfig
from utils.serving import (
    KVBlocks,
    PlainBlocks,
    Request,
    Step,
    latency,
    make_trace,
    percentile,
    recorded_trace,
    replay,
    summary,
    to_requests,
)
from utils.serving.pictures import draw_gaps, draw_timeline, draw_use
from utils.serving.replaying import Replay


def test_the_recorded_trace_is_what_its_generator_makes():
    trace = recorded_trace()
    assert list(trace) == make_trace(seed=0) != make_trace(seed=1)
    assert len(trace) == 96 and [a.tick for a in trace] == sorted(a.tick for a in trace)


def test_lengths_are_log_normal_and_arrivals_poisson():
    trace = make_trace(requests=4000, most_new=10**6)
    logs = [math.log(arrival.max_new) for arrival in trace]
    assert statistics.mean(logs) == pytest.approx(math.log(12), abs=0.05)
    assert statistics.stdev(logs) == pytest.approx(1, abs=0.05)
    gaps = [b.tick - a.tick for a, b in pairwise(trace)]
    assert statistics.mean(gaps) == pytest.approx(1, rel=0.05) and statistics.stdev(gaps) == pytest.approx(1, rel=0.1)


def test_half_the_prompts_begin_alike():
    pairs = list(zip(recorded_trace(), to_requests(recorded_trace()), strict=True))
    beginnings = {tuple(request.prompt[:24]) for arrival, request in pairs if arrival.system}
    assert len(beginnings) == 1 and 0.3 < sum(arrival.system for arrival, _ in pairs) / 96 < 0.7
    assert all(len(request.prompt) == arrival.prompt_len + 24 * arrival.system for arrival, request in pairs)


def test_a_request_refuses_nonsense_and_knows_its_end():
    for wrong in ({"prompt": [], "max_new": 1}, {"prompt": [1], "max_new": 0}):
        with pytest.raises(ValueError):
            Request(id=0, **wrong)
    assert Request(id=0, prompt=[7], max_new=3, stop=7).finished is False
    assert Request(id=0, prompt=[1], max_new=3, stop=7, output=[7]).finished
    assert Request(id=0, prompt=[1], max_new=1) != Request(id=0, prompt=[1], max_new=1)


def test_metrics_by_hand():
    one = latency(5, [20, 30, 80, 110, 120])
    assert (one.ttft, one.tpot, max(one.gaps)) == (15, 25, 50)
    assert latency(0, [1]).tpot is None
    with pytest.raises(ValueError):
        latency(3, [2])
    run = summary({0: 5, 1: 25}, {0: [20, 30, 80, 110, 120], 1: [110, 120, 130]})
    assert run.throughput == pytest.approx(8 / 125) and run.gap_max == 50 and run.ttft_p95 == 85
    assert math.isnan(percentile([], 50))


def test_a_replay_counts_computing_only_and_jumps_over_idle_time():
    requests = [Request(id=0, prompt=[1], max_new=2), Request(id=1, prompt=[1, 2], max_new=1, arrival=50)]
    queue = []

    def step():
        request = queue[0]
        request.computed = len(request.tokens)
        request.output.append(9)
        if request.finished:
            queue.remove(request)
        return {request.id: 9}

    run = replay(requests, queue.append, step, cost=lambda counts: 2.0, used=lambda: len(queue))
    assert run.times == {0: [2.0, 4.0], 1: [52.0]}
    assert [dict(step.counts) for step in run.steps] == [{0: 1}, {0: 1}, {1: 2}]
    assert [set(step.prefill) for step in run.steps] == [{0}, set(), {1}]
    with pytest.raises(RuntimeError, match="1 requests are not finished"):
        replay([Request(id=0, prompt=[1], max_new=1)], lambda request: None, dict, most_steps=3)


def test_plain_blocks_and_the_memory_behind_them():
    blocks = PlainBlocks(3, 4)
    taken = blocks.allocate(2)
    blocks.acquire(taken[:1])
    blocks.release(taken)
    assert blocks.ref_count == [1, 0, 0] and blocks.free == [2, 1]
    with pytest.raises(ValueError, match="released twice"):
        blocks.release([2])
    cache = KVBlocks(DecoderConfig(layers=3, hidden=32, heads=4, kv_heads=2), 5, 4, fill=7.0)
    assert cache.k.shape == (3, 5, 4, 2, 8) and float(cache.v.sum()) == 7 * cache.v.numel()
    assert cache.nbytes == 2 * 3 * 5 * 4 * 2 * 8 * 4


def test_pictures_are_drawn():
    steps = [Step(0, 1, {0: 3}, frozenset({0}), 2), Step(1, 2, {0: 1, 1: 4}, frozenset({1}), 3)]
    run = Replay(steps, {0: 0.0, 1: 0.5}, {0: [1.0, 2.0], 1: [2.0]})
    ax = draw_timeline(run, title="run", until=1.5)
    assert ax.get_xlim()[1] == pytest.approx(1500)
    assert draw_use({"run": run}, limit=4).get_ylim()[1] > 4
    assert draw_gaps({"run": run}).get_xscale() == "log"
    plt.close("all")


@pytest.mark.parametrize(
    ("ref", "free", "tables", "says"),
    [
        ([1, 0], [], {"a": [0]}, "block 1 is lost"),
        ([1, 0], [0, 1], {"a": [0]}, "is in the free list while a still uses it"),
        ([2, 0], [1], {"a": [0]}, "reference count 2, but 1 table holds it"),
        ([0, 0], [0, 1, 1], {}, "2 times: released too often"),
        ([1, 0], [1], {"a": [0, 0]}, "block 0 is in it twice"),
        ([1, 0], [1], {"a": [0, 5]}, "has block 5; there are 0 to 1"),
    ],
)
def test_blocks_that_are_lost_or_owned_twice_are_named(ref, free, tables, says):
    with pytest.raises(CheckFailed, match=says):
        serving.blocks_conserved(ref, free, tables, "step 3")


def test_what_must_be_known_about_blocks_is_in_the_numbers():
    serving.blocks_conserved([2, 1, 0], [2], {"a": [0], "b": [0, 1]}, "step 3")
    assert [serving.blocks_needed(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
