# kind: wrong
# about: A prompt that does not fit into what is left of the budget waits for a step in which it does.
# loses: schedule_budget, schedule_preemption, engine_outputs, engine_blocks
# says: "schedule_budget": "A prompt may be computed in chunks"
# edits: helper_methods

# %% edit="scheduler"
# replace
            count = min(left, len(request.tokens) - request.computed)
# by
            count = len(request.tokens) - request.computed
            if count > left:
                return []
