"""What a cell printed and showed, kept within bounds while the cell is still running."""

from __future__ import annotations

from typing import Any

HEAD_CHARS = 20_000
TAIL_CHARS = 20_000
RICH_CHARS = 4_000_000
FLOOD_CHARS = 10_000_000


class OutputLog:
    """Collects a cell's outputs in notebook format: head and tail of a long text, the first pictures.

    `seen` counts all characters that arrived; `flooded`: more than anyone prints on purpose.

    Example:
        >>> log = OutputLog()
        >>> log.stream("stdout", "a" * 50_000)
        >>> log.seen, len(log.outputs()[0]["text"]) < 41_000
        (50000, True)
    """

    def __init__(self) -> None:
        self.clear()
        self.seen = 0

    def clear(self) -> None:
        """Forget what is kept (IPython's clear_output); the count goes on."""
        self._kept: list[dict[str, Any]] = []
        self._head = HEAD_CHARS
        self._tail = ""
        self._cut = 0
        self._rich = RICH_CHARS

    @property
    def flooded(self) -> bool:
        """Whether the cell has sent more than FLOOD_CHARS characters."""
        return self.seen > FLOOD_CHARS

    def stream(self, name: str, text: str) -> None:
        """Add printed text; `name` is stdout or stderr."""
        self.seen += len(text)
        head, rest = text[: self._head], text[self._head :]
        self._head -= len(head)
        last = self._kept[-1] if self._kept else None
        if last and last["output_type"] == "stream" and last["name"] == name:
            last["text"] += head
        elif head:
            self._kept.append({"output_type": "stream", "name": name, "text": head})
        joined = self._tail + rest
        self._cut += max(0, len(joined) - TAIL_CHARS)
        self._tail = joined[-TAIL_CHARS:]

    def rich(self, output: dict[str, Any]) -> None:
        """Add a display_data or execute_result output; past their room, a note takes its place."""
        size = sum(len(str(value)) for value in output["data"].values())
        self.seen += size
        if size > self._rich:
            output = {**output, "data": {"text/plain": f"(an output of {size:,} characters is not kept)"}}
        else:
            self._rich -= size
        self._kept.append(output)

    def error(self, ename: str, evalue: str, traceback: list[str]) -> None:
        """Add an exception that ended the cell."""
        self._kept.append(
            {
                "output_type": "error",
                "ename": ename,
                "evalue": evalue[:HEAD_CHARS],
                "traceback": [line[:HEAD_CHARS] for line in traceback],
            }
        )

    def outputs(self) -> list[dict[str, Any]]:
        """The outputs so far, with a line that says how much was left out of the middle."""
        gap = f"\n[... {self._cut:,} characters left out ...]\n" if self._cut else ""
        tail = [{"output_type": "stream", "name": "stdout", "text": gap + self._tail}] if self._tail else []
        return [dict(output) for output in self._kept] + tail
