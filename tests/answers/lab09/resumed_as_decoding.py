# kind: wrong
# about: A preempted request that comes back counts as decoding, because it has an output (K11).
# loses: schedule_preemption
# says: "schedule_preemption": "A request with an output is not always decoding"
# edits: helper_methods

# %% edit="scheduler"
# replace
            count = min(left, len(request.tokens) - request.computed)
# by
            count = 1 if request.output else min(left, len(request.tokens) - request.computed)
