# kind: wrong
# about: Each rank returns its own part of the logits.
# loses: forward_values, forward_traffic, served_tokens, served_file
# says: "forward_values": "this rank's part of the vocabulary"

# %% edit="forward"
# replace
    pieces = [torch.empty_like(logits) for _ in range(dist.get_world_size(group))]
    dist.all_gather(pieces, logits, group=group)
    return torch.cat(pieces, -1)
# by
    return logits
