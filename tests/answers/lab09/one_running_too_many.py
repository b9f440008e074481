# kind: wrong
# about: max_running is checked after the admission.
# loses: schedule_budget
# says: "schedule_budget": "max_running is"
# edits: helper_methods

# %% edit="scheduler"
# replace
            while self.waiting and left and len(self.running) < self.max_running and self._admit(self.waiting[0]):
# by
            while self.waiting and left and len(self.running) <= self.max_running and self._admit(self.waiting[0]):
