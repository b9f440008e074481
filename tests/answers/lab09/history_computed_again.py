# kind: wrong
# about: Every step computes the whole text of each request again: right text, no use of the cache.
# loses: engine_work
# says: "engine_work": "are tokens padded, or computed again?"

# %% edit="engine"
# replace
            start = request.computed
# by
            start, count = 0, request.computed + count
# replace
        last = torch.tensor([count for _, count in batch]).cumsum(0) - 1
# by
        last = torch.tensor([count for _, _, count in rows]).cumsum(0) - 1
