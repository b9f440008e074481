# kind: wrong
# about: A paged attention of lab 09 that lines up the first query with the first key.
# loses: served_tokens, served_file
# says: "served_tokens": "in one process it is"

# %% edit="my_cache"
# replace
            seen = torch.arange(start + count) <= torch.arange(start, start + count)[:, None]
# by
            seen = torch.arange(start + count) <= torch.arange(count)[:, None]
