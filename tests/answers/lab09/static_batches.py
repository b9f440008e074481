# kind: wrong
# about: Nobody is admitted before all of the last batch have finished.
# loses: schedule_admission, schedule_preemption, engine_work
# says: "schedule_admission": "still waits, though"
# says: "engine_work": "Is a place filled as soon as a request ends?"
# edits: helper_methods

# %% edit="scheduler"
# replace
        if len(self.running) == len(before):  # nobody was preempted
# by
        if not before:
