"""The engine: a step asks the scheduler, runs the model once over the scheduled tokens, and hands out new tokens.

On several ranks, rank 0 schedules and tells the others what to compute; each rank holds its heads' keys and values of
every block. Left out: several models, speculative decoding, a step that begins before the last one ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from utils.engine.attention import PagedAttention
from utils.engine.blocks import BlockManager, PagedCache
from utils.engine.model import Model
from utils.engine.parallel import greedy, place
from utils.engine.plan import Plan, hear, tell
from utils.engine.sampling import Asked, draw
from utils.engine.scheduler import Scheduler
from utils.serving import Request

MOST_EMPTY = 3  # batches in a row with nothing in them; a scheduler that preempts may give one


@dataclass(frozen=True)
class Limits:
    """How much an engine may hold and do.

    num_blocks, block_size: of the cache, in slots for a token; max_tokens: the most in a step; max_running: the most
    requests at once. Raises ValueError where one is below 1.

    >>> Limits(num_blocks=10, block_size=16).slots
    160
    """

    num_blocks: int = 512
    block_size: int = 16
    max_tokens: int = 256
    max_running: int = 32

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.max_running > self.max_tokens:
            raise ValueError(f"max_running = {self.max_running} may not be above max_tokens = {self.max_tokens}")

    @property
    def slots(self) -> int:
        """For how many tokens there is room."""
        return self.num_blocks * self.block_size


class Engine:
    """Serves requests with a model; every rank makes one, rank 0 drives it and the others `follow`.

    model: this rank's share, with the parts that it was given; limits: sizes of the cache and of a step.

    On rank 0: `add(request)`, `cancel(id)`, then `step()` until `idle`, then `stop()`. Elsewhere: `follow()`.
    `generate(requests)` does all of that on every rank.

    >>> engine = Engine(Model())                                                      # doctest: +SKIP
    >>> engine.generate([Request(0, [504, 3575, 282, 4649, 314], max_new=2)])[0]      # doctest: +SKIP
    [7042, 30]
    """

    def __init__(self, model: Model, limits: Limits | None = None) -> None:
        self.model, self.limits, parts = model, limits or Limits(), model.parts
        self.cache = PagedCache(model.share, self.limits.num_blocks, self.limits.block_size)
        self.blocks: Any = (parts.block_manager or BlockManager)(self.limits.num_blocks, self.limits.block_size)
        make = parts.scheduler or Scheduler
        self._empty = 0
        self.scheduler: Any = make(self.blocks, self.limits.max_tokens, self.limits.max_running)

    @property
    def idle(self) -> bool:
        """Whether nobody waits and nobody runs."""
        return not self.scheduler.waiting and not self.scheduler.running

    def add(self, request: Request) -> None:
        """A request waits to be served; ValueError where it is longer than the model or the cache."""
        long, most = len(request.prompt) + request.max_new, self.model.config.max_len
        if long > most:
            raise ValueError(f"request {request.id} could grow to {long} tokens; the model knows {most} positions")
        known = range(self.model.config.vocab_size)
        worst = next((token for token in request.prompt if token not in known), None)
        if worst is not None:
            raise ValueError(f"request {request.id} holds token {worst}; the model knows 0 to {known[-1]}")
        self.scheduler.add(request)

    def cancel(self, request_id: int) -> bool:
        """Forget a request between two steps; its blocks are free at once. False where it is not here any more."""
        return self.scheduler.cancel(request_id)

    @torch.inference_mode()
    def step(self) -> dict[int, int]:
        """One pass through the model for whoever is scheduled; the new token of each request that got one, by id."""
        batch = self.scheduler.schedule()
        self._empty = 0 if batch or self.idle else self._empty + 1
        if self._empty > MOST_EMPTY:
            waiting, running = len(self.scheduler.waiting), len(self.scheduler.running)
            raise RuntimeError(
                f"the scheduler gave {self._empty} empty batches in a row; {waiting} requests wait and {running} run"
            )
        if not batch:
            return {}
        plan = Plan.of(batch, self.cache.block_size)
        tell(plan, self.model.group)
        had = [len(request.output) for request, _ in batch]
        self.scheduler.update(batch, self._choose(batch, *self._run(plan)))
        return {one.id: one.output[-1] for (one, _), before in zip(batch, had, strict=True) if len(one.output) > before}

    @torch.inference_mode()
    def follow(self) -> None:
        """On every rank but 0: compute what rank 0 says, until it stops."""
        while (plan := hear(self.model.group)) is not None:
            self._run(plan)

    def stop(self) -> None:
        """On rank 0: let the others go."""
        tell(None, self.model.group)

    def generate(self, requests: Sequence[Request]) -> dict[int, list[int]]:
        """Serve these to the end; called on every rank. Rank 0 gets the outputs by id, the others nothing."""
        if place(self.model.group)[0]:
            self.follow()
            return {}
        for request in requests:
            self.add(request)
        while not self.idle:
            self.step()
        self.stop()
        return {request.id: list(request.output) for request in requests}

    def _run(self, plan: Plan) -> tuple[list[int], torch.Tensor]:
        """The model's choice for each row of a plan, and all logits of the rows that are drawn."""
        parts = self.model.parts
        if parts.paged_attention is not None:
            attention = partial(parts.paged_attention, self.cache, [(list(table), *rest) for table, *rest in plan.rows])
        else:
            attention = PagedAttention(self.cache, plan.rows, parts.gqa_attention)
        x = self.model.hidden(torch.tensor([plan.tokens]), torch.tensor([plan.positions]), attention)[0]
        last = torch.tensor([count for *_, count in plan.rows]).cumsum(0) - 1
        part = self.model.logits(x[last])
        chosen = greedy(part, self.model.vocab_start, self.model.group).tolist()
        return chosen, self.model.whole(part[plan.drawn]) if plan.drawn else part[:0]

    def _choose(self, batch: list[tuple[Request, int]], chosen: list[int], logits: torch.Tensor) -> list[int]:
        rows = iter(logits)
        for number, (request, count) in enumerate(batch):
            if not getattr(request, "temperature", 0):
                continue
            row = next(rows)
            assert isinstance(request, Asked)
            if request.computed + count == len(request.tokens):  # in the middle of a prompt nothing is drawn
                chosen[number] = draw(row, request, self.model.parts.next_token_probabilities)
        return chosen
