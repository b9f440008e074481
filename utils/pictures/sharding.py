"""Pictures of sharded training state: who holds which bytes, and how they come and go during a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .palette import INK, ink_on, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("weights", "gradients", "optimizer states")
KIND_COLORS = (rank_color(0), rank_color(1), rank_color(2))


def draw_ledger(ledger: Mapping[str, Sequence[float]], ax: Axes | None = None, *, unit: str = "GB", title: str = ""):
    """Stacked bars, one a way of training: weights, gradients and optimizer states that one rank holds.

    ledger[name] = (weights, gradients, states), in `unit`. Returns the Axes.

    >>> ax = draw_ledger({"plain DP": (15, 15, 90), "stage 3": (0.2, 0.2, 1.4)})
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(7.0, 0.7 + 0.5 * len(ledger)), layout="constrained")[1]
    most = max(sum(parts) for parts in ledger.values())
    for row, (name, parts) in enumerate(ledger.items()):
        if len(parts) != len(KINDS):
            raise ValueError(f"{name} has {len(parts)} numbers; weights, gradients and optimizer states are three")
        left = 0.0
        for kind, color, part in zip(KINDS, KIND_COLORS, parts, strict=True):
            ax.barh(row, part, left=left, color=color, height=0.62, label=kind if row == 0 else None)
            if part > 0.06 * most:
                ax.text(left + part / 2, row, f"{part:.3g}", ha="center", va="center", fontsize=8, color=ink_on(color))
            left += part
        ax.text(left + 0.01 * most, row, f"{left:.3g} {unit}", va="center", fontsize=9, color=INK)
    ax.set_yticks(range(len(ledger)), list(ledger), fontsize=9)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.13 * most)
    ax.set_xlabel(f"{unit} on one rank", color=INK)
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    return _plain(ax, title)


def draw_live_bytes(curves: Mapping[str, Sequence[float]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Bytes of living tensors, divided by the number of parameters, through one step.

    curves[name] = one value after each operator that made a new tensor (`LiveBytes.curve`); steps of different
    lengths are drawn over the same width, so that forward, backward and update lie above each other. Returns the Axes.

    >>> ax = draw_live_bytes({"plain DP": [12, 13, 16, 12], "stage 3": [3, 4, 4, 3]})
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(7.0, 3.4), layout="constrained")[1]
    for number, (name, curve) in enumerate(curves.items()):
        if not curve:
            raise ValueError(f"the curve of {name} is empty: nothing was measured")
        places = [k / max(len(curve) - 1, 1) for k in range(len(curve))]
        ax.plot(places, curve, color=rank_color(number), linewidth=1.6, drawstyle="steps-post", label=name)
    ax.set_ylim(bottom=0)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 1], ["step begins", "step ends"])
    ax.set_ylabel("bytes a parameter", color=INK)
    ax.legend(frameon=False, fontsize=9, ncols=len(curves), loc="upper left", bbox_to_anchor=(0, -0.1))
    ax.grid(True, axis="y", color="#E5E5E5", linewidth=0.8)
    return _plain(ax, title)


def _plain(ax: Axes, title: str) -> Axes:
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_title(title, fontsize=10, loc="left")
    return ax
