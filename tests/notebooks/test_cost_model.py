"""The formulas in the cells of notebook 03, held to synthetic data and to schedules walked by hand."""

import ast
from pathlib import Path

import numpy as np
import pytest

from utils.cost import AlphaBeta
from utils.pictures import size_label

SOURCE = Path(__file__).resolve().parents[2] / "notebooks" / "03_cost_model.py"


def functions_of(path):
    """The functions that a text source defines, by name, without running its cells."""
    wanted = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    names = {"np": np, "size_label": size_label}
    exec(compile(ast.Module(body=wanted, type_ignores=[]), str(path), "exec"), names)
    return names


CELLS = functions_of(SOURCE)
SIZES = [8 * 4**k for k in range(11)]
LINK = AlphaBeta(alpha=5e-5, beta=4e-10)


@pytest.mark.parametrize("relative", [False, True])
def test_fit_finds_the_line_that_made_the_data(relative):
    alpha, beta = CELLS["fit"](SIZES, [LINK.time(n) for n in SIZES], relative=relative)
    assert (alpha, beta) == (pytest.approx(LINK.alpha, rel=1e-6), pytest.approx(LINK.beta, rel=1e-6))


def test_relative_fit_keeps_alpha_when_the_largest_message_was_slow():
    seconds = [LINK.time(n) for n in SIZES]
    seconds[-1] *= 1.3
    off = {r: abs(CELLS["fit"](SIZES, seconds, relative=r)[0] / LINK.alpha - 1) for r in (False, True)}
    assert off[True] < 0.2 < off[False]


def ring_by_hand(link, n, p):
    """Walk a ring: all ranks pass n/p at once, p - 1 steps to add and p - 1 to store."""
    return sum(link.time(n / p) for phase in ("add", "store") for step in range(p - 1))


def tree_by_hand(link, n, p):
    """Walk a tree: halve the ranks that still hold a part until one is left, then the same way back."""
    left, seconds = p, 0.0
    while left > 1:
        left //= 2
        seconds += 2 * link.time(n)
    return seconds


@pytest.mark.parametrize("n", [0, 1000, 10**6, 10**8])
def test_predictions_are_those_of_the_schedules(n):
    assert CELLS["ring_time"](LINK, n) == pytest.approx(ring_by_hand(LINK, n, 4))
    assert CELLS["tree_time"](LINK, n) == pytest.approx(tree_by_hand(LINK, n, 4))


def test_ring_and_tree_cross_where_the_text_says():
    n = 0.8 * LINK.alpha / LINK.beta
    assert CELLS["ring_time"](LINK, n) == pytest.approx(CELLS["tree_time"](LINK, n))


def curves(*, ring, tree):
    return {"ring": [[t, 9 * t] for t in ring], "tree": [[5 * t, t] for t in tree]}


def test_measured_crossing_is_read_between_the_points():
    sizes = [1024, 4096, 16384]
    assert CELLS["crossing"](sizes, curves(ring=[2, 2, 2], tree=[1, 1, 4])) == size_label(8192)
    assert CELLS["crossing"](sizes, curves(ring=[2, 2, 2], tree=[1, 3, 1])) == "none up to 16 KiB"
    assert CELLS["crossing"](sizes, curves(ring=[1, 1, 1], tree=[2, 2, 2])) == "below 1 KiB"
    assert CELLS["crossing"](sizes, curves(ring=[1, 2, 2], tree=[2, 1, 4])) == size_label(8192)
