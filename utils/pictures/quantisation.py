"""Pictures of quantisation: where levels lie among the numbers that they stand for, and error against bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .palette import INK, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_number_levels(
    numbers: Sequence[float], levels: Mapping[str, Sequence[float]], ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """Numbers as dots on a line, and below it, for each name, the values of all levels as ticks.

    Returns the Axes; ValueError where there is no number or no level.

    >>> ax = draw_number_levels([0.1, 0.9], {"1 bit": [0.0, 1.0]})
    """
    if not numbers or not levels or not all(len(row) for row in levels.values()):
        raise ValueError(f"{len(numbers)} numbers and {len(levels)} kinds of levels; at least one of each is needed")
    ax = ax or _figure(7.5, 0.7 + 0.45 * len(levels))
    ax.plot(numbers, [0.0] * len(numbers), "o", color=INK, markersize=5, zorder=3)
    for number, values in enumerate(levels.values(), start=1):
        ax.vlines(values, -number - 0.3, -number + 0.3, color=rank_color(number - 1), linewidth=1.2)
        ax.vlines(numbers, -number - 0.3, 0, color=INK, linewidth=0.5, linestyle=":", alpha=0.6)
    ax.set_yticks([0, *range(-1, -len(levels) - 1, -1)], ["numbers", *levels], fontsize=9)
    ax.set_ylim(-len(levels) - 0.6, 0.6)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def draw_error_against_bits(
    bits: Sequence[int], errors: Mapping[str, Sequence[float]], ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """Relative errors on a logarithmic scale, one line for each name.

    Returns the Axes; ValueError where a line has not one error for each number of bits.

    >>> ax = draw_error_against_bits([4, 8], {"per tensor": [0.2, 0.01]})
    """
    wrong = [name for name, row in errors.items() if len(row) != len(bits)]
    if wrong:
        raise ValueError(f"{wrong[0]} has {len(errors[wrong[0]])} errors for {len(bits)} numbers of bits")
    ax = ax or _figure(5.5, 3.2)
    for number, (name, row) in enumerate(errors.items()):
        ax.semilogy(bits, row, "o-", color=rank_color(number), linewidth=1.4, markersize=4, label=name)
    ax.set(xlabel="bits", ylabel="relative error of the weights")
    ax.set_xticks(list(bits))
    ax.legend(frameon=False, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def _figure(width: float, height: float) -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]
