# kind: wrong
# about: No mask inside a chunk.
# loses: paged_values, engine_outputs
# says: "paged_values": "a position sees later ones of the same pass"

# %% edit="paged_attention"
# replace
        seen = torch.arange(start + count) <= torch.arange(start, start + count)[:, None]
# by
        seen = torch.ones(count, start + count, dtype=torch.bool)
