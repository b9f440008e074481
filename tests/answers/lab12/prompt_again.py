# kind: wrong
# about: The whole text goes through the model for every token.
# loses: served_tokens, served_file
# says: "served_tokens": "are in the cache"

# %% edit="serve"
# replace
        for request, count in batch:
            start = request.computed
# by
        fed = [(request, request.computed + count) for request, count in batch]
        for request, count in fed:
            start = 0
# replace
        last = torch.tensor([count for _, count in batch]).cumsum(0) - 1
# by
        last = torch.tensor([count for _, count in fed]).cumsum(0) - 1
