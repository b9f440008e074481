"""Times against message sizes: measured points with their spread, predictions as lines."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from .palette import INK, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def size_label(nbytes: float, _position: int | None = None) -> str:
    """A number of bytes in binary units: 1 KiB is 1024 bytes.

    >>> size_label(4 * 1024), size_label(1536)
    ('4 KiB', '1.5 KiB')
    """
    for unit, name in UNITS:
        if nbytes >= unit:
            return f"{nbytes / unit:.3g} {name}"
    return f"{nbytes:.3g} B"


def time_label(seconds: float, _position: int | None = None) -> str:
    """A time in the unit that reads best.

    >>> time_label(0.00025), time_label(0.002)
    ('250 µs', '2 ms')
    """
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit * 0.9995:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-9:.3g} ns"


def draw_times(
    measured: dict[str, tuple[Sequence[float], Sequence[Sequence[float]]]],
    predicted: dict[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    ax: Axes | None = None,
    *,
    title: str = "",
) -> Axes:
    """Log-log plot of seconds against bytes; equal names in both arguments share a colour.

    measured[name] = (bytes, one list of seconds for each size): the point is the fastest try, the bar reaches
    up to the median. predicted[name] = (bytes, seconds): a line. Returns the Axes.

    >>> ax = draw_times({"ping-pong": ([8, 4096], [[9e-5, 1e-4], [1e-4, 2e-4]])})
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    predicted = predicted or {}
    names = list(dict.fromkeys([*measured, *predicted]))
    for name in names:
        color, marker = rank_color(names.index(name)), "osD^v"[names.index(name) % 5]
        if name in measured:
            _points(ax, *measured[name], name, color, marker)
        if name in predicted:
            sizes, seconds = predicted[name]
            ax.plot(sizes, seconds, color=color, linewidth=1.6, linestyle="--", label=f"{name}, predicted")
    return _scales(ax, title)


def _points(ax: Axes, sizes, tries, name: str, color: str, marker: str) -> None:
    fastest = [min(seconds) for seconds in tries]
    above = [median(seconds) - low for seconds, low in zip(tries, fastest, strict=True)]
    style = {"fmt": marker, "color": color, "markersize": 5, "elinewidth": 1, "capsize": 2}
    ax.errorbar(sizes, fastest, yerr=[[0.0] * len(above), above], label=f"{name}, measured", **style)


def _scales(ax: Axes, title: str) -> Axes:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    small, large = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(base=4 if large <= 4**6 * small else 16, numticks=12))
    ax.xaxis.set_major_formatter(FuncFormatter(size_label))
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 50 * low else (1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(time_label))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("bytes in the buffer of one rank", color=INK)
    ax.set_ylabel("time", color=INK)
    ax.grid(True, which="major", color="#E5E5E5", linewidth=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    # below: the curves may lie anywhere inside
    ax.legend(frameon=False, fontsize=9, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.17))
    ax.set_title(title, fontsize=10, loc="left")
    return ax
