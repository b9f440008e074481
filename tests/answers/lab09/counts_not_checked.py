# kind: wrong
# about: Rows that do not add up to T are let pass.
# loses: paged_writes
# says: "paged_writes": "a ValueError is asked for"

# %% edit="paged_attention"
# replace
    if total != q.shape[2]:
        raise ValueError(f"rows stand for {total} tokens, and q has {q.shape[2]}")
# by
    k, v, q = k[:, :, :total], v[:, :, :total], q[:, :, :total]
