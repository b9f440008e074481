"""A request as an engine keeps it: what was asked, what came out, how much of it is in the cache."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Request:
    """One prompt and its continuation.

    id: its name; prompt: token numbers, at least one; max_new: the most tokens to generate, at least 1; stop: a token
    that ends the text (it is part of the output), None for none; arrival: when it came, in seconds or steps.

    The engine's: output, tokens generated so far; computed, for how many of `tokens` (from the first) keys and values
    lie in the cache; blocks, the block table: where they lie. Two requests are never equal, whatever they hold.

    Raises ValueError: no prompt, or max_new below 1.

    >>> request = Request(id=0, prompt=[5, 6, 7], max_new=2, output=[8])
    >>> request.tokens, request.finished
    ([5, 6, 7, 8], False)
    """

    id: int
    prompt: list[int]
    max_new: int
    stop: int | None = None
    arrival: float = 0.0
    output: list[int] = field(default_factory=list)
    computed: int = 0
    blocks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError(f"request {self.id} has no prompt; at least one token is needed")
        if self.max_new < 1:
            raise ValueError(f"request {self.id} has max_new = {self.max_new}; it must be at least 1")

    @property
    def tokens(self) -> list[int]:
        """Prompt and output, a new list."""
        return [*self.prompt, *self.output]

    @property
    def finished(self) -> bool:
        """Whether a stop condition holds: enough tokens, or the last one is `stop`."""
        return len(self.output) >= self.max_new or (bool(self.output) and self.output[-1] == self.stop)
