# kind: wrong
# about: Runs all steps though every row has finished.
# loses: generate_work
# says: "generate_work": "work went on when all rows had finished"

# %% edit="generate"
# replace
        while len(max(rows, key=len)) < max_new_tokens and not all(finished):
# by
        for _ in range(max_new_tokens):
