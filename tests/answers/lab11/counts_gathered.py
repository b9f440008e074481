# kind: wrong
# about: Gathers all counts where each rank needs those for its own experts.
# loses: counts_traffic
# says: "counts_traffic": "E/p counts to each other rank"

# %% edit="count_rows"
# replace
    recv = torch.empty_like(send)
    dist.all_to_all_single(recv, send, group=group)
# by
    everyones = [torch.empty_like(send) for _ in range(len(send))]
    dist.all_gather(everyones, send, group=group)
    recv = torch.stack([theirs[dist.get_rank(group)] for theirs in everyones])
