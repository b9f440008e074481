# kind: wrong
# about: Calls the backward of a stage from torch.distributed.pipelining.
# loses: run_messages
# says: "run_messages": "run_schedule ran code of distributed/pipelining/"

# %% edit="run_schedule"
# replace
        y.backward(None if stage == last else take("B", stage, k, stage + 1))
# by
        from torch.distributed.pipelining._backward import stage_backward

        gradient = None if stage == last else [take("B", stage, k, stage + 1)]
        above = stage_backward(y if stage == last else [y], gradient, [x] if stage else [])
        if stage:
            x.grad = above[0]
