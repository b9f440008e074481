# kind: wrong
# about: A matched prefix is shared, and computed again all the same.
# loses: engine_work
# says: "engine_work": "Nothing was reused"

# %% solution="scheduler"
class Scheduler:
    def __init__(self, blocks, max_tokens: int, max_running: int) -> None:
        self.blocks, self.max_tokens, self.max_running = blocks, max_tokens, max_running
        self.waiting, self.running = [], []

    def _needed(self, tokens: int) -> int:
        return -(-tokens // self.blocks.block_size)

    def add(self, request: Request) -> None:
        needed = self._needed(len(request.prompt) + request.max_new)
        if needed > self.blocks.num_blocks:
            raise ValueError(f"request {request.id} needs {needed} blocks, and there are {self.blocks.num_blocks}")
        self.waiting.append(request)

    def _let_go(self, request: Request) -> None:
        self.blocks.release(request.blocks)
        request.blocks = []

    def cancel(self, request_id: int) -> bool:
        for queue in (self.waiting, self.running):
            for request in queue:
                if request.id == request_id:
                    queue.remove(request)
                    self._let_go(request)
                    return True
        return False

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._let_go(request)
        request.computed = 0
        self.waiting.insert(0, request)  # it came before all that wait

    def _grow(self, request: Request) -> bool:
        """One more slot; False if the request itself had to go."""
        while self._needed(request.computed + 1) > len(request.blocks):
            fresh = self.blocks.allocate(1)
            if fresh is not None:
                request.blocks += fresh
                continue
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _admit(self, request: Request) -> bool:
        tokens = request.tokens
        matched = self.blocks.match(tokens)
        self.blocks.acquire(matched)
        fresh = self.blocks.allocate(self._needed(len(tokens)) - len(matched))
        if fresh is None:
            self.blocks.release(matched)
            return False
        request.blocks = [*matched, *fresh]

        self.running.append(self.waiting.pop(0))
        return True

    def schedule(self) -> list[tuple[Request, int]]:
        before = list(self.running)
        decoding = [request for request in before if request.output and request.computed == len(request.tokens) - 1]
        batch = [(request, 1) for request in decoding if request in self.running and self._grow(request)]
        left = self.max_tokens - len(batch)

        def give(request):
            nonlocal left
            count = min(left, len(request.tokens) - request.computed)
            left -= count
            return [(request, count)] if count else []

        for request in list(self.running):
            if request not in decoding:
                batch += give(request)
        if len(self.running) == len(before):  # nobody was preempted
            while self.waiting and left and len(self.running) < self.max_running and self._admit(self.waiting[0]):
                batch += give(self.running[-1])
        return batch

    def update(self, batch: list[tuple[Request, int]], predicted: list[int]) -> None:
        for (request, count), token in zip(batch, predicted, strict=True):
            request.computed += count
            tokens = request.tokens
            self.blocks.register(tokens[: request.computed], request.blocks)
            if request.computed == len(tokens):
                request.output.append(token)
            if request.finished:
                self.running.remove(request)
                self._let_go(request)
