# kind: wrong
# about: Predicts after the first token of each request, not after the last.
# loses: served_tokens, served_file
# says: "served_tokens": "in one process it is"

# %% edit="serve"
# replace
        last = torch.tensor([count for _, count in batch]).cumsum(0) - 1
# by
        last = torch.tensor([count for _, count in batch]).cumsum(0) - torch.tensor([count for _, count in batch])
