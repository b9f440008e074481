# kind: wrong
# about: Who still waits cannot be cancelled.
# loses: schedule_cancel
# says: "schedule_cancel": "cancel of"
# edits: helper_methods

# %% edit="scheduler"
# replace
        for queue in (self.waiting, self.running):
# by
        for queue in (self.running,):
