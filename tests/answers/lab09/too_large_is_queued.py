# kind: wrong
# about: A request that can never fit blocks the queue for ever.
# loses: schedule_admission
# says: "schedule_admission": "it can never be finished"
# edits: helper_methods

# %% edit="scheduler"
# replace
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
# by
class Scheduler:
    def __init__(self, blocks, max_tokens: int, max_running: int) -> None:
        self.blocks, self.max_tokens, self.max_running = blocks, max_tokens, max_running
        self.waiting, self.running = [], []

    def _needed(self, tokens: int) -> int:
        return -(-tokens // self.blocks.block_size)

    def add(self, request: Request) -> None:
        needed = self._needed(len(request.prompt) + request.max_new)

        self.waiting.append(request)
