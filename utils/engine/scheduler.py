"""Who computes how many tokens in the next step: continuous batching, decided anew in every step.

Iteration-level scheduling (Yu et al. 2022, Orca, section 3), prompts in chunks beside decodes (Agrawal et al. 2023,
arXiv 2308.16369), preemption by computing again (Kwon et al. 2023, arXiv 2309.06180, section 4.5). First come, first
served. Left out: priorities, swapping.
"""

from __future__ import annotations

from typing import Any

from utils.serving import Request

Batch = list[tuple[Request, int]]


class Scheduler:
    """Requests that wait and that run, both in order of arrival, over a block manager.

    max_tokens: the most in a step; max_running: the most requests at once.

    >>> from utils.serving import PlainBlocks
    >>> scheduler = Scheduler(PlainBlocks(4, 4), max_tokens=6, max_running=2)
    >>> scheduler.add(Request(0, [1] * 8, max_new=2))
    >>> [(request.id, count) for request, count in scheduler.schedule()]
    [(0, 6)]
    """

    def __init__(self, blocks: Any, max_tokens: int, max_running: int) -> None:
        self.blocks, self.max_tokens, self.max_running = blocks, max_tokens, max_running
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """It waits, last; ValueError where all blocks together could not hold it."""
        needed = self._blocks_for(len(request.prompt) + request.max_new)
        if needed > self.blocks.num_blocks:
            raise ValueError(f"request {request.id} needs {needed} blocks, and there are {self.blocks.num_blocks}")
        self.waiting.append(request)

    def cancel(self, request_id: int) -> bool:
        """Forget a request and give its blocks back; False where it is not here."""
        for queue in (self.waiting, self.running):
            for request in queue:
                if request.id == request_id:
                    queue.remove(request)
                    self._give_back(request)
                    return True
        return False

    def schedule(self) -> Batch:
        """The next step: pairs of a request and how many of its next tokens are computed."""
        batch: Batch = []
        left, before = self.max_tokens, len(self.running)
        decoding, filling = [], []
        for request in self.running:
            (decoding if _missing(request) == 1 and request.output else filling).append(request)
        for request in decoding:
            if left and request in self.running and self._grow(request):
                batch.append((request, 1))
                left -= 1
        for request in filling:
            if left and request in self.running:
                left -= self._put(batch, request, left)
        if len(self.running) == before:  # nobody had to go, so there is room
            while self.waiting and left and len(self.running) < self.max_running and self._admit(self.waiting[0]):
                left -= self._put(batch, self.running[-1], left)
        return batch

    def update(self, batch: Batch, predicted: list[int]) -> None:
        """After the step: what the model predicts behind each request's last computed token."""
        size, ended = self.blocks.block_size, []
        for (request, count), token in zip(batch, predicted, strict=True):
            full = request.computed // size
            request.computed += count
            whole = len(request.prompt) + len(request.output) == request.computed
            if request.computed // size > full:
                self.blocks.register(request.tokens[: request.computed], request.blocks)
            if whole:
                request.output.append(token)
            if request.finished:
                ended.append(request)
                self._give_back(request)
        if ended:
            self.running = [request for request in self.running if request not in ended]

    def _put(self, batch: Batch, request: Request, left: int) -> int:
        count = min(left, _missing(request))
        batch.append((request, count))
        return count

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.blocks.block_size)

    def _grow(self, request: Request) -> bool:
        """Room for one more token; False where the request itself had to go for it."""
        while self._blocks_for(request.computed + 1) > len(request.blocks):
            fresh = self.blocks.allocate(1)
            if fresh is None:
                latest = self.running.pop()
                self._give_back(latest)
                self.waiting.insert(0, latest)  # it came before all that wait
                if latest is request:
                    return False
            else:
                request.blocks += fresh
        return True

    def _admit(self, request: Request) -> bool:
        tokens = request.tokens
        known = self.blocks.match(tokens)
        self.blocks.acquire(known)  # first: they may be free, and would be handed out
        fresh = self.blocks.allocate(self._blocks_for(len(tokens)) - len(known))
        if fresh is None:
            self.blocks.release(known)
            return False
        request.blocks, request.computed = [*known, *fresh], len(known) * self.blocks.block_size
        self.running.append(self.waiting.pop(0))
        return True

    def _give_back(self, request: Request) -> None:
        """All blocks; who comes back after this is computed anew. The request's text stays."""
        self.blocks.release(request.blocks)
        request.blocks = []
        if not request.finished:
            request.computed = 0


def _missing(request: Request) -> int:
    """How many of a request's tokens are not in the cache."""
    return len(request.prompt) + len(request.output) - request.computed
