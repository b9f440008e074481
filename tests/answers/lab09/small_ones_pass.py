# kind: wrong
# about: Whoever fits is admitted: a large request may wait for ever.
# loses: schedule_admission, schedule_preemption
# says: "schedule_admission": "a large one may wait for ever"
# edits: helper_methods

# %% edit="scheduler"
# replace
        self.running.append(self.waiting.pop(0))
# by
        self.waiting.remove(request)
        self.running.append(request)
# replace
            while self.waiting and left and len(self.running) < self.max_running and self._admit(self.waiting[0]):
                batch += give(self.running[-1])
# by
            for request in list(self.waiting):
                if left and len(self.running) < self.max_running and self._admit(request):
                    batch += give(request)
