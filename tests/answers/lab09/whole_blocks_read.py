# kind: wrong
# about: Attends to every slot of the table, written or not.
# loses: paged_values, engine_outputs
# says: "paged_values": "elements"

# %% edit="paged_attention"
# replace
        own_k, own_v = (kept[place].transpose(0, 1)[None] for kept in (keys, values))
# by
        table = rows[len(outputs)][0]
        every = torch.tensor([block * size + i for block in table for i in range(size)])
        seen = torch.ones(count, len(every), dtype=torch.bool)
        own_k, own_v = (kept[every].transpose(0, 1)[None] for kept in (keys, values))
