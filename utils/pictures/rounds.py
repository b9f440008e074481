"""Pictures of messages in rounds: ranks side by side, time downward, an arrow for each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .held import color_rank_labels, draw_cell
from .palette import FAINT, INK, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT, GAP = 0.56, 0.34, 1.0


def draw_rounds(
    held: Sequence[Sequence[int]],
    messages: Sequence[Sequence[tuple[int, int]]],
    ax: Axes | None = None,
    *,
    title: str = "",
) -> Axes:
    """Who holds what after each round, and who sent to whom in it.

    held[k][r] is the marked number (see `marks`) of rank r after round k; held[0] is the start. messages[k]
    lists (source, destination) of round k + 1, so held is one longer than messages, else ValueError.
    Returns the Axes.

    >>> ax = draw_rounds([[1, 0], [1, 1]], [[(0, 1)]])       # rank 0 sends to rank 1
    """
    if len(held) != len(messages) + 1:
        raise ValueError(f"{len(messages)} rounds need {len(messages) + 1} rows of values, not {len(held)}")
    ranks, rounds = len(held[0]), len(messages)
    if ax is None:
        ax = _figure(ranks, rounds)
    for rank in range(ranks):
        ax.plot([rank, rank], [0, -GAP * rounds], color=FAINT, linewidth=1, zorder=0)
    for k, values in enumerate(held):
        for rank, value in enumerate(values):
            new = k > 0 and value != held[k - 1][rank]
            _box(ax, rank, -GAP * k, value, new)
    for k, sent in enumerate(messages):
        for source, destination in sent:
            _arrow(ax, source, destination, k)
    return _frame(ax, ranks, rounds, title)


def _box(ax: Axes, rank: int, y: float, value: int, new: bool) -> None:
    from matplotlib.patches import Rectangle

    corner = (rank - WIDTH / 2, y - HEIGHT / 2)
    ax.add_patch(Rectangle(corner, WIDTH, HEIGHT, facecolor="white", edgecolor="none", zorder=1))
    draw_cell(ax, *corner, value, width=WIDTH, height=HEIGHT, new=new)


def _arrow(ax: Axes, source: int, destination: int, k: int) -> None:
    start = (source, -GAP * k - HEIGHT / 2)
    side = WIDTH * 0.25 if destination < source else -WIDTH * 0.25
    end = (destination + side, -GAP * (k + 1) + HEIGHT / 2)
    style = {"arrowstyle": "-|>", "color": rank_color(source), "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=end, xytext=start, arrowprops=style)


def _frame(ax: Axes, ranks: int, rounds: int, title: str) -> Axes:
    ax.set_xlim(-0.5, ranks - 0.5)
    ax.set_ylim(-GAP * rounds - 0.3, 0.35)
    ax.set_xticks(range(ranks), [f"rank {r}" for r in range(ranks)], fontsize=9)
    ax.xaxis.tick_top()
    color_rank_labels(ax.get_xticklabels())
    names = ["start", *(f"round {k + 1}" for k in range(rounds))]
    ax.set_yticks([-GAP * k for k in range(rounds + 1)], names, fontsize=9, color=INK)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_title(title, fontsize=10, loc="left", pad=12)
    return ax


def _figure(ranks: int, rounds: int) -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(1.0 + 0.95 * ranks, 0.9 + 0.78 * rounds), layout="constrained")[1]
