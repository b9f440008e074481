# kind: wrong
# about: A cancelled request leaves the lists and keeps its blocks.
# loses: schedule_cancel, engine_outputs, engine_blocks
# says: "schedule_cancel": "nobody will release them"
# edits: helper_methods

# %% edit="scheduler"
# replace
                    self._let_go(request)
# by
