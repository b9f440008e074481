# kind: wrong
# about: Preemption starts the text anew, though its reader has seen some of it.
# loses: schedule_preemption, engine_outputs
# says: "schedule_preemption": "its reader has it already"
# edits: helper_methods

# %% edit="scheduler"
# replace
        request.computed = 0
# by
        request.computed = 0
        request.output = []
