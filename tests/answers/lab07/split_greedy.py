# kind: wrong
# about: Axis by axis: the best tp with pp = 1 first, then the best pp for it, then the micro-batches.
# loses: best_split_legal, best_split_cheapest
# says: "best_split_cheapest": "best_split"

# %% solution="best_split"
def best_split(job, memory, seconds):
    def legal(split):
        tp, pp, dp, m = split.tp, split.pp, split.dp, split.micro_batches
        fits = dp * pp * tp == job.gpus and job.layers % pp == 0 and job.batch % (dp * m) == 0
        return fits and not any(n % tp for n in (job.gpus_per_node, job.heads, job.kv_heads, job.ffn))

    def best(splits):
        return min((s for s in splits if legal(s)), key=seconds, default=None)

    first = best(Split(job.gpus // tp, 1, tp, 1) for tp in range(1, job.gpus_per_node + 1))
    if first is None:
        return None
    second = best(Split(job.gpus // first.tp // pp, pp, first.tp, 1) for pp in range(1, job.layers + 1)) or first
    splits = [Split(second.dp, second.pp, second.tp, m) for m in range(1, job.batch + 1)]
    return best(s for s in splits if memory(s) <= job.memory_limit)
