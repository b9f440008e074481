# kind: wrong
# about: tp is not held to the number of key and value heads.
# loses: best_split_legal
# says: "best_split_legal": "does not divide kv_heads = 2"

# %% edit="best_split"
# replace
        if any(n % tp for n in (job.gpus_per_node, job.heads, job.kv_heads, job.ffn)):
# by
        if any(n % tp for n in (job.gpus_per_node, job.heads, job.ffn)):
