# kind: wrong
# about: No norm before the head.
# loses: forward_values, served_tokens, served_file
# says: "forward_values": "the last norm was left out"

# %% edit="forward"
# replace
    logits = F.linear(norm(x[0, wanted], "output_norm"), embedding)  # [n, V/p]
# by
    logits = F.linear(x[0, wanted], embedding)  # [n, V/p]
