"""Timing on ranks: the slowest rank counts, warm-up does not, and every rank gets the same numbers."""

from time import sleep

import pytest
import torch.distributed as dist

from utils import launch
from utils.measure import time_on_ranks

NAP = 0.03


def slow_rank_and_calls():
    calls = []

    def step(nap):
        calls.append(nap)
        if dist.get_rank() == 1:
            sleep(nap)

    return time_on_ranks(step, NAP, warmup=3, tries=4), len(calls)


def test_every_try_lasts_until_the_slowest_rank_is_done():
    run = launch(slow_rank_and_calls, ranks=3, trace=False)
    times = [seconds for seconds, _ in run.values]
    assert times[0] == times[1] == times[2] and len(times[0]) == 4
    assert min(times[0]) >= NAP
    assert [calls for _, calls in run.values] == [7, 7, 7]


def one_slow_warmup():
    naps = iter([5 * NAP, 0.0, 0.0])
    return time_on_ranks(lambda: sleep(next(naps)), warmup=1, tries=2)


def test_warm_up_is_not_counted():
    assert min(launch(one_slow_warmup, ranks=1, trace=False).values[0]) < 5 * NAP


@pytest.mark.parametrize("warmup, tries", [(0, 0), (-1, 3)])
def test_impossible_counts_are_named(warmup, tries):
    with pytest.raises(ValueError, match=f"tries={tries} and warmup={warmup}"):
        time_on_ranks(lambda: None, warmup=warmup, tries=tries)
