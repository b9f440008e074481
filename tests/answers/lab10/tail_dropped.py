# kind: wrong
# about: seq // 2p tokens a chunk: what is left over is ignored (F06).
# loses: shard_layout, split_gradient, ring_values, ring_gradients, all_to_all_step
# says: "shard_layout": "zigzag_positions"
# says: "ring_values": "each once"

# %% edit="shard_tokens"
# replace
    chunks = torch.arange(seq).tensor_split(2 * ranks)
# by
    chunks = torch.arange(seq // (2 * ranks) * 2 * ranks).tensor_split(2 * ranks)
