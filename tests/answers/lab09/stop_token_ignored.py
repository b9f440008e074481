# kind: wrong
# about: Only max_new ends a text.
# loses: schedule_update, engine_outputs
# says: "schedule_update": "has met its stop condition and still runs"
# edits: helper_methods

# %% edit="scheduler"
# replace
            if request.finished:
# by
            if len(request.output) == request.max_new:
