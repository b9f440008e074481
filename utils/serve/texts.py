"""One answer while it is written: tokens in, text out, cut where a stop text begins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from utils.engine import Stream, Tokenizer

Pieces = asyncio.Queue[tuple[int, str, str | None] | BaseException]


class Answer:
    """The answer to one request: `pieces` gets (index, text, finish reason or None), the last with a reason.

    Answers of one call share a queue, and index tells them apart. Text that could be the beginning of a stop text is
    held back until it is known. tokens: how many were drawn.

    >>> answer = Answer(None, eos=2, max_new=9, stops=["END"])
    >>> [answer.add_text(text) for text in ("one E", "N", "two EN", "D three")], answer.finish
    (['one ', '', 'ENtwo ', ''], 'stop')
    """

    def __init__(
        self, tokenizer: Tokenizer | None, eos: int, max_new: int, stops: Sequence[str] = (), *, index: int = 0,
        pieces: Pieces | None = None,
    ) -> None:  # fmt: skip
        self.stream = Stream(tokenizer) if tokenizer else None
        self.eos, self.max_new, self.stops = eos, max_new, tuple(stops)
        self.tokens, self.held, self.index = 0, "", index
        self.finish: str | None = None
        self.pieces: Pieces = pieces or asyncio.Queue()

    def add_token(self, token: int) -> None:
        """The engine's next token."""
        if self.finish:
            return
        assert self.stream is not None
        self.tokens += 1
        last = token == self.eos or self.tokens >= self.max_new
        text = self.add_text(self.stream.feed(token) + (self.stream.end() if last else ""))
        if last and not self.finish:
            self.finish = "stop" if token == self.eos else "length"
            text, self.held = text + self.held, ""
        if text or self.finish:
            self.pieces.put_nowait((self.index, text, self.finish))

    def add_text(self, text: str) -> str:
        """What of the held and the new text can be given away; sets `finish` where a stop text appeared."""
        text = self.held + text
        ends = [at for at in (text.find(stop) for stop in self.stops) if at >= 0]
        if ends:
            self.finish, self.held = "stop", ""
            return text[: min(ends)]
        hold = max((_overlap(text, stop) for stop in self.stops), default=0)
        self.held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def fail(self, error: BaseException) -> None:
        """Nothing more comes; whoever waits gets the error."""
        self.finish = self.finish or "error"
        self.pieces.put_nowait(error)


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` could be the beginning of `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
