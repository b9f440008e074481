# kind: wrong
# about: After a preemption only the prompt is computed again; the slots of the output stay empty (K14).
# loses: schedule_preemption, schedule_update, engine_outputs, engine_blocks
# says: "schedule_update": "a prediction from the middle is not an output"
# edits: helper_methods

# %% edit="scheduler"
# replace
            count = min(left, len(request.tokens) - request.computed)
# by
            count = min(left, max(1, len(request.prompt) - request.computed))
# replace
            if request.computed == len(tokens):
# by
            if request.computed >= len(request.prompt):
