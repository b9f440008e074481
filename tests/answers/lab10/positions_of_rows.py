# kind: wrong
# about: The mask takes a tensor's rows for positions (F12).
# loses: blockwise_masks, ring_values, ring_gradients, ring_traffic, ring_balance, ring_memory
# says: "blockwise_masks": "not q_pos and k_pos"
# says: "ring_values": "positions began at 0 in each block"

# %% edit="blockwise_forward"
# replace
) -> tuple[torch.Tensor, torch.Tensor]:
# by
) -> tuple[torch.Tensor, torch.Tensor]:
    q_pos, k_pos = torch.arange(q.shape[2]), torch.arange(k.shape[2])
