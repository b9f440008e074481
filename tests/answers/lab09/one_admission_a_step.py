# kind: wrong
# about: At most one request is admitted in a step.
# loses: schedule_admission, engine_work
# says: "schedule_admission": "still waits, though"
# edits: helper_methods

# %% edit="scheduler"
# replace
            while self.waiting and left and len(self.running) < self.max_running and self._admit(self.waiting[0]):
# by
            if self.waiting and left and len(self.running) < self.max_running and self._admit(self.waiting[0]):
