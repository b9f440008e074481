# kind: wrong
# about: A preempted request queues up again behind later ones.
# loses: schedule_admission, schedule_preemption
# says: "schedule_admission": "came earlier and still waits"
# edits: helper_methods

# %% edit="scheduler"
# replace
        self.waiting.insert(0, request)  # it came before all that wait
# by
        self.waiting.append(request)
