# kind: wrong
# about: A padded prompt counts from its column, not from 0; relative positions hide it.
# loses: left_pad_rows
# says: "left_pad_rows": "prompts count from the column"

# %% edit="generate"
# replace
        positions[row, longest - len(prompt) :] = torch.arange(len(prompt))
# by
        positions[row, longest - len(prompt) :] = torch.arange(longest - len(prompt), longest)
