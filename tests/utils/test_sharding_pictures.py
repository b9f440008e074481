"""The ledger adds up to what it is given, and curves of different lengths share one width."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import pytest

from utils.pictures.sharding import draw_ledger, draw_live_bytes


def test_ledger_stacks_its_parts_and_writes_the_sum():
    ax = draw_ledger({"plain DP": (15, 15, 90), "stage 3": (0.25, 0.25, 1.5)})
    bars = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert bars == [(0, 15), (15, 15), (30, 90), (0, 0.25), (0.25, 0.25), (0.5, 1.5)]
    written = [text.get_text() for text in ax.texts]
    assert written == ["15", "15", "90", "120 GB", "2 GB"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["plain DP", "stage 3"]


def test_ledger_refuses_anything_but_three_parts():
    with pytest.raises(ValueError, match="are three"):
        draw_ledger({"plain DP": (15, 105)})


def test_curves_of_different_lengths_share_one_width():
    ax = draw_live_bytes({"plain DP": [12, 20, 16], "stage 3": [3, 4, 5, 4, 3]})
    assert [list(line.get_xdata()) for line in ax.lines] == [[0, 0.5, 1], [0, 0.25, 0.5, 0.75, 1]]
    assert [max(line.get_ydata()) for line in ax.lines] == [20, 5]


def test_an_empty_curve_is_refused():
    with pytest.raises(ValueError, match="stage 2 is empty"):
        draw_live_bytes({"stage 2": []})
