"""Pictures of who holds what: a row for each rank, cells coloured by the ranks the numbers came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .marking import origins, row
from .palette import FAINT, INK, ink_on, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL_INCHES = 0.52


def draw_cell(
    ax: Axes, x: float, y: float, value: int, *, width: float = 1.0, height: float = 1.0, new: bool = False
):
    """One cell with its lower left corner at (x, y): a stripe for each origin rank, the number on top.

    `new` draws a thick outline: the cell changed in this step. Returns the Axes.
    """
    from matplotlib.patches import Rectangle

    ranks = origins(value)
    for i, rank in enumerate(ranks):
        stripe = width / len(ranks)
        ax.add_patch(
            Rectangle((x + i * stripe, y), stripe, height, facecolor=rank_color(rank), edgecolor="none")
        )
    edge, line = (INK, 2.2) if new else (FAINT if not ranks else "white", 1.0)
    ax.add_patch(
        Rectangle(
            (x, y), width, height, facecolor="none", edgecolor=edge, linewidth=line, zorder=3 if new else 2
        )
    )
    if ranks:
        _number(ax, x + width / 2, y + height / 2, value, ranks)
    return ax


def _number(ax: Axes, x: float, y: float, value: int, ranks: Sequence[int]) -> None:
    text = str(value)
    size = 9 if len(text) <= 4 else 7
    if len(ranks) == 1:
        ax.text(
            x, y, text, ha="center", va="center", fontsize=size, color=ink_on(rank_color(ranks[0])), zorder=4
        )
        return
    plate = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    ax.text(x, y, text, ha="center", va="center", fontsize=size - 1, color=INK, bbox=plate, zorder=4)


def draw_held(
    held: Sequence, ax: Axes | None = None, *, title: str = "", before: Sequence | None = None
) -> Axes:
    """Grid of what every rank holds: held[r] is rank r's tensor or list of marks (see `marks`), or None.

    Cells that differ from `before` (same form as held) get a thick outline. Zeros are drawn empty.
    Returns the Axes; makes a figure when `ax` is None.

    >>> ax = draw_held([[1, 2], None])           # rank 0 holds two numbers, rank 1 nothing
    """
    rows = [row(h) for h in held]
    old = [row(h) for h in before] if before is not None else rows
    slots = max([1, *(len(r) for r in rows), *(len(r) for r in old)])
    if ax is None:
        ax = _figure(slots, len(rows))
    for rank, (values, was) in enumerate(zip(rows, old, strict=True)):
        y = len(rows) - 1 - rank
        for slot, value in enumerate(values):
            draw_cell(ax, slot, y, value, height=0.86, new=value != (was[slot] if slot < len(was) else 0))
        if not values:
            ax.text(0.1, y + 0.43, "nothing", va="center", fontsize=8, color="#777777", style="italic")
    _label_ranks(ax, len(rows))
    ax.set_xlim(-0.05, slots + 0.05)
    ax.set_ylim(-0.08, len(rows) - 0.06)
    ax.set_aspect("equal", anchor="W")
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def _label_ranks(ax: Axes, ranks: int) -> None:
    ax.set_yticks(
        [ranks - 1 - r + 0.43 for r in range(ranks)], [f"rank {r}" for r in range(ranks)], fontsize=9
    )
    color_rank_labels(ax.get_yticklabels())
    ax.set_xticks([])
    ax.tick_params(length=0, pad=5)
    for side in ax.spines.values():
        side.set_visible(False)


def color_rank_labels(labels: Sequence) -> None:
    """Put each tick label, one a rank in order, on a plate of its rank's colour."""
    for rank, label in enumerate(labels):
        color = rank_color(rank)
        label.set_color(ink_on(color))
        label.set_bbox({"boxstyle": "round,pad=0.2", "facecolor": color, "edgecolor": "none"})


def _figure(slots: int, ranks: int) -> Axes:
    import matplotlib.pyplot as plt

    size = (0.9 + CELL_INCHES * slots, 0.5 + CELL_INCHES * ranks)
    return plt.subplots(figsize=size, layout="constrained")[1]


def draw_before_after(before: Sequence, after: Sequence, title: str = "", axes: Sequence[Axes] | None = None):
    """Two grids side by side, what ranks held before and after an operation; returns the two Axes.

    The forms of `before` and `after` are those of `draw_held`.

    >>> axes = draw_before_after([[1, 2], None], [[1, 2], [1, 2]], "broadcast from rank 0")
    """
    wide = [max([1, *(len(row(h)) for h in held)]) for held in (before, after)]
    if axes is None:
        axes = _pair(wide, len(before))
    draw_held(before, axes[0], title=f"{title}: before" if title else "before")
    draw_held(after, axes[1], title="after")
    return axes


def _pair(wide: Sequence[int], ranks: int) -> list[Axes]:
    import matplotlib.pyplot as plt

    widths = [max(wide[0], 3), 0.7, max(wide[1], 3)]
    size = (1.9 + CELL_INCHES * sum(widths), 0.5 + CELL_INCHES * ranks)
    left, middle, right = plt.subplots(1, 3, figsize=size, width_ratios=widths, layout="constrained")[1]
    middle.axis("off")
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.6, "mutation_scale": 16}
    middle.annotate("", xy=(1, 0.5), xytext=(0, 0.5), xycoords="axes fraction", arrowprops=arrow)
    return [left, right]


def draw_steps(steps: Sequence[Sequence], titles: Sequence[str], *, columns: int = 4, axes=None):
    """One grid for each step of an algorithm; cells that changed since the step before have a thick outline.

    steps[k][r] is what rank r holds after step k (step 0: at the start). Returns the array of Axes.

    >>> axes = draw_steps([[[1], [0]], [[1], [1]]], ["start", "step 1"], columns=2)
    """
    if axes is None:
        axes = _panels(len(steps), columns, max(len(row(h)) for h in steps[0]), len(steps[0]))
    flat = list(axes.flat)
    for k, held in enumerate(steps):
        draw_held(held, flat[k], title=titles[k], before=steps[k - 1] if k else None)
    for ax in flat[len(steps) :]:
        ax.axis("off")
    return axes


def _panels(count: int, columns: int, slots: int, ranks: int):
    import matplotlib.pyplot as plt

    lines = -(-count // columns)
    size = (columns * (0.75 + CELL_INCHES * slots), lines * (0.45 + CELL_INCHES * ranks))
    return plt.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)[1]
