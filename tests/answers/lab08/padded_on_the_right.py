# kind: wrong
# about: Pads behind the prompt, and reads the logits of the pads.
# loses: left_pad_rows, generate_ragged
# says: "left_pad_rows": "the padding stands at the right"

# %% edit="generate"
# replace
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
        positions[row, longest - len(prompt) :] = torch.arange(len(prompt))
# by
        tokens[row, : len(prompt)] = torch.tensor(prompt)
        positions[row, : len(prompt)] = torch.arange(len(prompt))
