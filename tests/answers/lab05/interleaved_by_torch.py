# kind: wrong
# about: Has torch.distributed.pipelining make the interleaved schedule.
# loses: interleaved_order
# says: "interleaved_order": "interleaved ran code of distributed/pipelining/"

# %% solution="interleaved"
def interleaved(p, m, v):
    from torch.distributed.pipelining import schedules as torchs

    def ranks_order(rank):
        warm_up = min(m * v, 2 * (p - 1 - rank) + (v - 1) * p)
        steady = m * v - warm_up
        forward = lambda step: step // p % v * p + rank
        backward = lambda step: (v - 1 - (step - warm_up) // p % v) * p + rank
        order = torchs._get_1f1b_rank_ops(v, p, warm_up, steady, warm_up, rank, forward, backward)
        done = [action for action in order if action is not None]
        return [("F" if a.computation_type.name == "FORWARD" else "B", a.stage_index, a.microbatch_index) for a in done]

    return [ranks_order(rank) for rank in range(p)]
