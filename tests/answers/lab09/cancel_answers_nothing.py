# kind: wrong
# about: cancel returns None.
# loses: schedule_cancel
# says: "schedule_cancel": "returned [None]"
# edits: helper_methods

# %% edit="scheduler"
# replace
                    return True
        return False
# by
                    return
