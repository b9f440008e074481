# kind: wrong
# about: Gathers the gradients of all replicas and adds them up on each rank: right values, and for two replicas even the right bytes.
# loses: sync_traffic
# says: "sync_traffic": "2(p-1)/p of the gradients' bytes"

# %% edit="sync_gradients"
# replace
    dist.all_reduce(flat, group=mesh.group("dp"))
# by
    everyone = [torch.empty_like(flat) for _ in mesh.ranks("dp")]
    dist.all_gather(everyone, flat, group=mesh.group("dp"))
    flat = sum(everyone)
