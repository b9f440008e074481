# kind: wrong
# about: Who has finished leaves and keeps its blocks.
# loses: schedule_preemption, schedule_update, engine_outputs, engine_blocks
# says: "schedule_update": "still holds blocks"
# edits: helper_methods

# %% edit="scheduler"
# replace
                self._let_go(request)
# by
