# kind: wrong
# about: Prompts get the budget first; who decodes waits for what is left.
# loses: schedule_budget
# says: "schedule_budget": "is decoding and gets no token"
# edits: helper_methods

# %% edit="scheduler"
# replace
        batch = [(request, 1) for request in decoding if request in self.running and self._grow(request)]
        left = self.max_tokens - len(batch)
# by
        batch = []
        left = self.max_tokens
# replace
        if len(self.running) == len(before):  # nobody was preempted
            while self.waiting and left and len(self.running) < self.max_running and self._admit(self.waiting[0]):
                batch += give(self.running[-1])
        return batch
# by
        while self.waiting and left and len(self.running) < self.max_running and self._admit(self.waiting[0]):
            batch += give(self.running[-1])
        for request in decoding:
            if left and request in self.running and self._grow(request):
                batch.append((request, 1))
                left -= 1
        return [(request, count) for request, count in batch if request in self.running]
