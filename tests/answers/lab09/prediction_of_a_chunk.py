# kind: wrong
# about: What the model predicts in the middle of a prompt is appended.
# loses: schedule_update, schedule_cancel, engine_outputs, engine_blocks
# says: "schedule_update": "a prediction from the middle is not an output"
# edits: helper_methods

# %% edit="scheduler"
# replace
            if request.computed == len(tokens):
                request.output.append(token)
# by
            request.output.append(token)
