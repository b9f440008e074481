# kind: wrong
# about: A row-parallel layer of lab 06 that adds the bias, and never the parts.
# loses: forward_values, served_tokens, served_file
# says: "forward_values": "forward (p = 3"

# %% edit="my_layers"
# replace
        y = reduced(F.linear(x, weight), group)
# by
        y = F.linear(x, weight)
