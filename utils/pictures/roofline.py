"""The roofline (Williams, Waterman and Patterson 2009): the speed that a machine allows at an arithmetic intensity.

Work that does I operations for each byte it reads can run at most at min(peak, I * bandwidth). Left of the ridge, at
peak / bandwidth, bytes are the limit, right of it arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .palette import INK, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_roofline(
    peak: float,
    bandwidth: float,
    measured: Mapping[str, Sequence[tuple[str, float, float]]],
    ax: Axes | None = None,
    *,
    title: str = "",
) -> Axes:
    """The roof of a machine and measured points under it, on logarithmic axes.

    peak: FLOP/s; bandwidth: bytes/s; measured: name -> (label, FLOP for each byte, FLOP/s) of each point. Returns the
    Axes; ValueError where a number is not above 0.

    >>> ax = draw_roofline(50e9, 10e9, {"decode": [("B = 1", 0.5, 4e9)]})     # the ridge is at 5 FLOP a byte
    """
    points = [point for group in measured.values() for point in group]
    if min([peak, bandwidth, *(value for _, *xy in points for value in xy)]) <= 0:
        raise ValueError("peak, bandwidth, intensities and speeds must be above 0")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")[1]
    ridge = peak / bandwidth
    low = min([ridge, *(x for _, x, _ in points)]) / 3
    high = max([ridge, *(x for _, x, _ in points)]) * 3
    ax.plot([low, ridge, high], [low * bandwidth / 1e9, peak / 1e9, peak / 1e9], color=INK, linewidth=1.4)
    ax.axvline(ridge, color="#BBBBBB", linewidth=1, linestyle=":")
    for number, (name, group) in enumerate(measured.items()):
        color = rank_color(number)
        ax.plot([x for _, x, _ in group], [y / 1e9 for *_, y in group], "os^D"[number % 4], color=color, label=name)
        for label, x, y in group:
            ax.annotate(label, (x, y / 1e9), xytext=(4, -9), textcoords="offset points", fontsize=7.5, color=color)
    ax.set(xscale="log", yscale="log", xlabel="FLOP for each byte read", ylabel="GFLOP/s")
    speeds = [peak / 1e9, *(y / 1e9 for *_, y in points)]
    ax.set_ylim(min(speeds) / 2, 2 * max(speeds))
    _plain_numbers(ax)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def _plain_numbers(ax: Axes) -> None:
    """0.5, 1, 2, 5, 10 on both axes, in place of powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, subs in ((ax.xaxis, (1.0,)), (ax.yaxis, (1.0, 2.0, 5.0))):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
