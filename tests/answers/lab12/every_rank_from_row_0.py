# kind: wrong
# about: Each rank takes its rows of the vocabulary for the first ones.
# loses: forward_values, served_tokens, served_file
# says: "forward_values": "forward (p = 3"

# %% edit="forward"
# replace
    x = parts["vocab_embedding"](tokens[None], embedding, dist.get_rank(group) * len(embedding), group)  # [1, T, H]
# by
    x = parts["vocab_embedding"](tokens[None], embedding, 0, group)  # [1, T, H]
