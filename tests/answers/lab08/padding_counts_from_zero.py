# kind: wrong
# about: Padding has position 0, like a first token.
# loses: left_pad_rows, generate_ragged
# says: "left_pad_rows": "padding counts too"
# says: "generate_ragged": "padding is seen"

# %% edit="generate"
# replace
    tokens, positions = torch.zeros(len(prompts), longest).long(), torch.full((len(prompts), longest), -1)
# by
    tokens, positions = torch.zeros(len(prompts), longest).long(), torch.zeros(len(prompts), longest).long()
