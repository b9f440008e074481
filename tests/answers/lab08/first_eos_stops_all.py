# kind: wrong
# about: The first row to finish stops the batch.
# loses: generate_ragged
# says: "generate_ragged": "a finished row must not stop the others"

# %% edit="generate"
# replace
        while len(max(rows, key=len)) < max_new_tokens and not all(finished):
# by
        while len(max(rows, key=len)) < max_new_tokens and not any(finished):
