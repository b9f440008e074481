# kind: wrong
# about: Returns prompts and new tokens.
# loses: generate_rows, generate_ragged, generate_work
# says: "generate_rows": "only the new tokens are wanted"

# %% edit="generate"
# replace
    return rows
# by
    return [list(prompt) + row for prompt, row in zip(prompts, rows, strict=True)]
