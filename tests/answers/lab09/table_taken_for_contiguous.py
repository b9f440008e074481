# kind: wrong
# about: Counts on from the first block, as if a table were one piece of memory.
# loses: paged_values, paged_writes, engine_outputs
# says: "paged_writes": "slot"

# %% edit="paged_attention"
# replace
        torch.tensor([table[i // size] * size + i % size for i in range(start + count)]) for table, start, count in rows
# by
        (torch.arange(start + count) + table[0] * size).clamp(max=len(keys) - 1) for table, start, count in rows
