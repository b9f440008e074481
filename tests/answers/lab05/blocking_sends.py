# kind: wrong
# about: dist.send for everything: GPipe runs, 1F1B hangs.
# loses: run_one_f_one_b, run_interleaved, run_memory, run_two_batches
# says: "run_one_f_one_b": "no wait can end"

# %% edit="run_schedule"
# replace
            tensor = tensor.contiguous()
            sending[op, stage, k] = dist.isend(tensor, stage % p, tag=tag(op, stage, k)), tensor
# by
            dist.send(tensor.contiguous(), stage % p, tag=tag(op, stage, k))
