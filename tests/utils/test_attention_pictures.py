"""Every block is drawn where the ring has it, and every score in the colour of the rank that computes it."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import pytest
from matplotlib.colors import to_hex

from utils.pictures import draw_ring_rounds, draw_score_owners, rank_color


def test_blocks_move_one_rank_a_round():
    ax = draw_ring_rounds(3)
    colors = [to_hex(patch.get_facecolor()).upper() for patch in ax.patches if patch.get_width() == 1]
    assert colors == [rank_color((rank - step) % 3) for step in range(3) for rank in range(3)]
    assert sum(text.get_text() == "k1 v1" for text in ax.texts) == 3
    assert [label.get_text() for label in ax.get_xticklabels()] == ["round 0", "round 1", "round 2"]


def test_one_rank_sends_nothing():
    assert len(draw_ring_rounds(1).texts) == 1
    with pytest.raises(ValueError, match="at least one rank, not 0"):
        draw_ring_rounds(0)


def test_scores_have_the_colour_of_their_query_and_shares_add_up():
    ax = draw_score_owners([0, 0, 1, 1])
    image = ax.images[0].get_array()
    assert to_hex(image[3][0]).upper() == rank_color(1) and to_hex(image[1][0]).upper() == rank_color(0)
    assert to_hex(image[0][3]).upper() == "#F2F2F2"
    assert ax.get_xlabel().endswith("rank: 0: 30%, 1: 70%")
    assert draw_score_owners([0, 1], causal=False).get_xlabel().endswith("0: 50%, 1: 50%")
    with pytest.raises(ValueError, match="no queries"):
        draw_score_owners([])
