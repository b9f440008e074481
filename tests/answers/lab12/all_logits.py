# kind: wrong
# about: Logits of all tokens are gathered, and most thrown away.
# loses: forward_traffic
# says: "forward_traffic": "logits of all tokens were gathered"

# %% edit="forward"
# replace
    logits = F.linear(norm(x[0, wanted], "output_norm"), embedding)  # [n, V/p]
# by
    logits = F.linear(norm(x[0], "output_norm"), embedding)  # [n, V/p]
# replace
    return torch.cat(pieces, -1)
# by
    return torch.cat(pieces, -1)[wanted]
