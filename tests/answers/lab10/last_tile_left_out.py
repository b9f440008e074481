# kind: wrong
# about: A last tile that is shorter is left out: the last tokens are ignored (F06).
# loses: blockwise_values, blockwise_masks, blockwise_precision, blockwise_gradients, blockwise_memory, ring_values,
#  ring_gradients, all_to_all_step
# says: "blockwise_values": "the last tile, which is shorter, was left out"

# %% edit="blockwise_forward"
# replace
    keys = list(zip(k.split(tile, 2), v.split(tile, 2), k_pos.split(tile), strict=True))
# by
    keys = list(zip(k.split(tile, 2), v.split(tile, 2), k_pos.split(tile), strict=True))
    keys = [part for part in keys if len(part[2]) == tile]
