# kind: wrong
# about: Takes the logits of each request's first token.
# loses: engine_outputs
# says: "engine_outputs": "alone it gets"

# %% edit="engine"
# replace
        last = torch.tensor([count for _, count in batch]).cumsum(0) - 1
# by
        counts = torch.tensor([count for _, count in batch])
        last = counts.cumsum(0) - counts
