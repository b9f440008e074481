# kind: wrong
# about: New tokens stand at the padded width in every row (K03).
# loses: generate_ragged
# says: "generate_ragged": "one position for the whole batch"

# %% edit="generate"
# replace
            tokens, positions = logits.argmax(-1, keepdim=True), positions[:, -1:] + 1
# by
            tokens, positions = logits.argmax(-1, keepdim=True), positions[:, -1:].amax(0, keepdim=True).expand(len(prompts), 1) + 1
