# kind: wrong
# about: Averages over the ranks: 1/p of the gradient.
# loses: split_gradient
# says: "split_gradient": "divided by p"

# %% edit="split_tokens"
# replace
        return whole
# by
        return whole / dist.get_world_size()
