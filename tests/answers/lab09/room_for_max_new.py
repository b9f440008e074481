# kind: wrong
# about: Blocks for max_new tokens are taken at admission.
# loses: schedule_admission, schedule_preemption
# says: "schedule_admission": "paging is for that"
# edits: helper_methods

# %% edit="scheduler"
# replace
        fresh = self.blocks.allocate(self._needed(len(tokens)) - len(matched))
# by
        fresh = self.blocks.allocate(self._needed(len(request.prompt) + request.max_new) - len(matched))
