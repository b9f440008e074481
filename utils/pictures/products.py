"""Pictures of a matrix product whose weight is split: a colour for the rank that holds a number.

`Y = X W` with W split by columns gives every rank whole outputs; split by rows, every rank has a partial sum
(Shoeybi et al. 2019, arXiv 1909.08053, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .palette import INK, ink_on, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARED = "#EEEEEE"  # held by every rank
CELL = 0.46


def draw_matrix(
    ax: Axes, x: float, y: float, rows: Sequence[Sequence[float]], owners: Sequence[Sequence], name: str = ""
) -> float:
    """A matrix with its upper left corner at (x, y); `owners[i][j]` is the rank that holds entry i, j.

    An owner of None is every rank. Returns the x where the matrix ends.
    """
    from matplotlib.patches import Rectangle

    for i, (row, held) in enumerate(zip(rows, owners, strict=True)):
        for j, (value, owner) in enumerate(zip(row, held, strict=True)):
            color = SHARED if owner is None else rank_color(owner)
            corner = (x + j, y - i - 1)
            ax.add_patch(Rectangle(corner, 1, 1, facecolor=color, edgecolor="white", linewidth=1.5))
            center = (corner[0] + 0.5, corner[1] + 0.5)
            ax.text(*center, f"{value:g}", ha="center", va="center", fontsize=10, color=ink_on(color))
    width = len(rows[0])
    ax.text(x + width / 2, y + 0.12, name, ha="center", va="bottom", fontsize=9, color=INK)
    return x + width


def draw_split_product(
    x: Sequence[Sequence[float]], weight: Sequence[Sequence[float]], by: str, ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """X W with one column (by="columns") or one row (by="rows") of W on each rank, and what each rank computes.

    Where W is split by rows X is split by columns, and the partial results stand one below the other before
    their sum. Returns the Axes; ValueError for another `by`, or where the shapes do not fit.

    >>> ax = draw_split_product([[1, 2]], [[1, 1], [2, 3]], by="columns")    # rank 0 has 5, rank 1 has 7
    """
    if by not in ("columns", "rows"):
        raise ValueError(f'by={by!r}: a weight is split by "columns" or by "rows"')
    inner, outer = len(weight), len(weight[0])
    if any(len(row) != inner for row in x):
        raise ValueError(f"x has {len(x[0])} columns and the weight {inner} rows; they must be equally many")
    partial = [[[row[k] * weight[k][j] for j in range(outer)] for row in x] for k in range(inner)]
    total = [[sum(partial[k][i][j] for k in range(inner)) for j in range(outer)] for i in range(len(x))]
    columns = by == "columns"
    if ax is None:
        ax = _figure(inner, outer, len(x), columns)
    x_owner = [[None if columns else k for k in range(inner)] for _ in x]
    w_owner = [[j if columns else k for j in range(outer)] for k in range(inner)]
    place = draw_matrix(ax, 0, 0, x, x_owner, "X")
    place = draw_matrix(ax, place + 1, 0, weight, w_owner, "W")
    ax.text(place + 0.75, -0.5 * max(inner, len(x)), "=", ha="center", va="center", fontsize=13)
    place += 1.5
    if columns:
        draw_matrix(ax, place, 0, total, [list(range(outer)) for _ in x], "each rank: whole outputs")
        return _frame(ax, place + max(outer, 4), inner, len(x), title)
    for k in range(inner):
        name = "each rank: a partial sum" if k == 0 else ""
        draw_matrix(ax, place, -k * (len(x) + 0.15), partial[k], [[k] * outer for _ in x], name)
    ax.text(place + outer + 0.95, -0.5 * max(inner, len(x)), "→ sum", ha="center", va="center", fontsize=10)
    end = draw_matrix(ax, place + outer + 1.9, 0, total, [[None] * outer for _ in x], "all-reduced")
    return _frame(ax, end + 0.6, inner, len(x), title)


def _frame(ax: Axes, width: float, inner: int, rows: int, title: str) -> Axes:
    ax.set_xlim(-0.1, width)
    ax.set_ylim(-max(inner, rows * inner * 1.08) - 0.1, 0.9)
    ax.set_aspect("equal", anchor="W")
    ax.axis("off")
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def _figure(inner: int, outer: int, rows: int, columns: bool) -> Axes:
    import matplotlib.pyplot as plt

    width = inner + outer + 3 + (max(outer, 4) if columns else 2 * outer + 2.5)
    return plt.subplots(figsize=(CELL * width, CELL * (max(inner, inner * rows) + 2)), layout="constrained")[1]
