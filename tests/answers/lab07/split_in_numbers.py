# kind: right
# about: Goes through all quadruples of numbers.

# %% solution="best_split"
def best_split(job, memory, seconds):
    def divides(n, *numbers):
        return all(number % n == 0 for number in numbers)

    best, cost = None, math.inf
    places = (job.gpus, job.gpus_per_node, job.heads, job.kv_heads, job.ffn)
    for tp in (n for n in range(1, job.gpus + 1) if divides(n, *places)):
        for pp in (n for n in range(1, job.gpus + 1) if divides(n, job.gpus // tp, job.layers)):
            dp = job.gpus // tp // pp
            for m in (n for n in range(1, job.batch + 1) if divides(dp * n, job.batch)):
                split = Split(dp, pp, tp, m)
                if memory(split) <= job.memory_limit and seconds(split) < cost:
                    best, cost = split, seconds(split)
    return best
