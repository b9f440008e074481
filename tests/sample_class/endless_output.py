# student: Hiroshi Tanaka
# about: a line for debugging that never stops printing
# loses: scatter_gather
# says: "scatter_gather": "still waits for"
# %% solution="gather"
def gather(x: torch.Tensor, sizes: list[int], dst: int) -> torch.Tensor | None:
    rank = dist.get_rank()
    if rank != dst:
        dist.send(x, dst)
        return None
    waiting = list(range(len(sizes)))
    while waiting:
        print("rank", rank, "still waits for", waiting)
