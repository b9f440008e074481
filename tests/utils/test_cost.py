"""The link model and bus bandwidth, held to published factors and to a ring walked through by hand."""

import doctest

import pytest

from utils import cost
from utils.cost import AlphaBeta, algbw, bus_factor, busbw

# nccl-tests, doc/PERFORMANCE.md, evaluated at 8 ranks.
PUBLISHED_AT_8 = {
    "all_reduce": 1.75,
    "reduce_scatter": 0.875,
    "all_gather": 0.875,
    "all_to_all": 0.875,
    "broadcast": 1.0,
    "reduce": 1.0,
}


def ring_traffic(ranks):
    """What one rank of a ring all-reduce sends, in buffers: walk the steps and count the pieces."""
    held = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    sent = 0
    for phase in (0, 1):
        for k in range(ranks - 1):
            moves = [(rank, (rank + phase - k) % ranks) for rank in range(ranks)]
            moving = [set(held[rank][piece]) for rank, piece in moves]
            for (rank, piece), data in zip(moves, moving, strict=True):
                held[(rank + 1) % ranks][piece] |= data
            sent += 1
    assert all(piece == set(range(ranks)) for row in held for piece in row)
    return sent / ranks


@pytest.mark.parametrize("op, factor", PUBLISHED_AT_8.items())
def test_bus_factors_are_the_published_ones(op, factor):
    assert bus_factor(op, 8) == pytest.approx(factor)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_all_reduce_factor_is_what_a_ring_sends(ranks):
    assert bus_factor("all_reduce", ranks) == pytest.approx(ring_traffic(ranks))
    parts = bus_factor("reduce_scatter", ranks) + bus_factor("all_gather", ranks)
    assert bus_factor("all_reduce", ranks) == pytest.approx(parts)


def test_bus_bandwidth_of_a_perfect_ring_is_the_bandwidth_of_its_link():
    link, size, ranks = AlphaBeta(alpha=0.0, beta=1 / 3e9), 12_000_000, 4
    seconds = 2 * (ranks - 1) * link.time(size / ranks)
    assert busbw("all_reduce", size, seconds, ranks) == pytest.approx(link.bandwidth)
    assert algbw(size, seconds) == pytest.approx(2e9)


def test_time_of_a_message():
    link = AlphaBeta(alpha=2e-5, beta=5e-10)
    assert link.time(0) == 2e-5
    assert link.time(40_000) == pytest.approx(4e-5)  # at alpha / beta both parts are equal
    assert AlphaBeta(1.0, 0.0).bandwidth == float("inf")


@pytest.mark.parametrize("alpha, beta", [(-1e-9, 1.0), (1.0, -1e-12), (float("nan"), 1.0)])
def test_a_link_refuses_negative_costs(alpha, beta):
    with pytest.raises(ValueError, match=r"s/byte: neither can be negative"):
        AlphaBeta(alpha, beta)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"'allreduce'.*all_reduce"):
        bus_factor("allreduce", 4)
    with pytest.raises(ValueError, match="ranks=0"):
        bus_factor("all_reduce", 0)
    with pytest.raises(ValueError, match="seconds=0"):
        algbw(1, 0)


def test_worked_examples():
    result = doctest.testmod(cost)
    assert result.attempted >= 5 and result.failed == 0
