"""What ranks print: collected whole, shown while they run, and cut when it does not end."""

from __future__ import annotations

import codecs
import sys
from typing import Any

KEEP = 256 * 1024  # characters kept of each end of a rank's output
SHOW = 64 * 1024  # characters shown of one rank while it runs


class Capture:
    """One stream of one rank: the head and the tail of what it wrote, at most `2 * KEEP` characters."""

    def __init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.head, self.tail, self.dropped = "", "", 0

    def feed(self, data: bytes) -> str:
        """Add bytes; returns them as text."""
        text = self.decoder.decode(data)
        room = KEEP - len(self.head)
        self.head += text[:room]
        self.tail += text[room:] if room > 0 else text
        if len(self.tail) > 2 * KEEP:
            self.dropped += len(self.tail) - KEEP
            self.tail = self.tail[-KEEP:]
        return text

    @property
    def text(self) -> str:
        """All of it, or both ends with a line between them that says how much was cut."""
        if len(self.tail) <= KEEP and not self.dropped:
            return self.head + self.tail
        cut = self.dropped + max(0, len(self.tail) - KEEP)
        return f"{self.head}\n... {cut} characters cut ...\n{self.tail[-KEEP:]}"


class Lines:
    """Shows whole lines as they come, each with its rank in front: `[rank 2] hello`."""

    def __init__(self, ranks: int | None) -> None:
        self.alone, self.part, self.shown = ranks is None, {}, {}

    def feed(self, rank: int, text: str) -> None:
        text = self.part.pop(rank, "") + text
        whole, _, rest = text.rpartition("\n")
        if rest:
            self.part[rank] = rest
        if whole or text.endswith("\n"):
            self.show(rank, whole)

    def show(self, rank: int, lines: str) -> None:
        shown = self.shown.get(rank, 0)
        if shown > SHOW:
            return
        self.shown[rank] = shown + len(lines)
        if self.shown[rank] > SHOW:
            lines = lines[: SHOW - shown] + f"\n... the rest is in run.stdout[{rank}]"
        head = "" if self.alone else f"[rank {rank}] "
        print("\n".join(head + line for line in lines.split("\n")), flush=True)

    def close(self) -> None:
        for rank, rest in sorted(self.part.items()):
            self.show(rank, rest)


class Grouped(Lines):
    """In a notebook: one area a rank, in rank order, that fills while the ranks run."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        from IPython.display import display

        self.texts = [""] * ranks
        self.handles = [display(_Area(r, ""), display_id=True) for r in range(ranks)]

    def feed(self, rank: int, text: str) -> None:
        if len(self.texts[rank]) > SHOW:
            return
        self.texts[rank] += text
        if len(self.texts[rank]) > SHOW:
            self.texts[rank] = self.texts[rank][:SHOW] + f"\n... the rest is in run.stdout[{rank}]"
        handle = self.handles[rank]
        if handle is not None:
            handle.update(_Area(rank, self.texts[rank]))

    def close(self) -> None:
        return


class _Area:
    """One rank's output as a notebook shows it."""

    def __init__(self, rank: int, text: str) -> None:
        self.rank, self.text = rank, text

    def __repr__(self) -> str:
        return f"rank {self.rank} | " + self.text.rstrip("\n").replace("\n", f"\nrank {self.rank} | ")

    def _repr_html_(self) -> str:
        from html import escape

        from ..pictures.palette import RANK_COLORS

        color = RANK_COLORS[self.rank % len(RANK_COLORS)]
        return (
            f'<div style="border-left:4px solid {color};padding:1px 0 1px 8px;margin:1px 0;display:flex">'
            f'<div style="min-width:4em;opacity:.7;font-size:smaller">rank {self.rank}</div>'
            f'<pre style="margin:0;padding:0;background:none">{escape(self.text)}</pre></div>'
        )


def viewer(show: bool | str, ranks: int | None) -> Any:
    """The viewer for a launch: None (silent), lines, or `"grouped"` areas where there is a notebook to show them."""
    if not show:
        return None
    if show == "grouped" and ranks is not None and "ipykernel" in sys.modules:
        return Grouped(ranks)
    return Lines(ranks)
