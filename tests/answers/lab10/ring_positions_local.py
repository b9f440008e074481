# kind: wrong
# about: Each block's positions begin at 0 (F12).
# loses: ring_values, ring_gradients, ring_traffic, ring_balance, ring_memory
# says: "ring_values": "positions began at 0 in each block"

# %% edit="ring_attention"
# replace
        positions = [zigzag_positions(seq, r, ranks) for r in range(ranks)]
# by
        positions = [torch.arange(len(zigzag_positions(seq, r, ranks))) for r in range(ranks)]
