# kind: wrong
# about: pp is not held to the number of layers.
# loses: best_split_legal, best_split_cheapest
# says: "best_split_legal": "layers"

# %% solution="best_split"
def best_split(job: Job, memory, seconds) -> Split | None:
    legal = []
    for tp, pp in product(range(1, job.gpus_per_node + 1), range(1, job.gpus + 1)):
        if job.gpus % (tp * pp):
            continue
        if any(n % tp for n in (job.gpus_per_node, job.heads, job.kv_heads, job.ffn)):
            continue
        dp = job.gpus // (tp * pp)
        splits = [Split(dp, pp, tp, m) for m in range(1, job.batch // dp + 1) if job.batch % (dp * m) == 0]
        legal += [split for split in splits if memory(split) <= job.memory_limit]
    return min(legal, key=seconds, default=None)
