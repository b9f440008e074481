# kind: right
# about: The batch is in another order; a deque waits.
# edits: helper_methods

# %% edit="scheduler"
# replace
class Scheduler:
# by
from collections import deque


class Scheduler:
# replace
        self.waiting, self.running = [], []
# by
        self.waiting, self.running = deque(), []
# replace
        self.waiting.insert(0, request)  # it came before all that wait
# by
        self.waiting.appendleft(request)
# replace
        self.running.append(self.waiting.pop(0))
# by
        self.running.append(self.waiting.popleft())
# replace
        return batch
# by
        return batch[::-1]
