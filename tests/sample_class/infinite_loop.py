# student: Grace O'Neil
# about: a rank waits in a loop for a message from itself
# loses: all_to_all_values
# says: "all_to_all_values": "while len(arrived) < world"
# %% solution="all_to_all"
def all_to_all(x: torch.Tensor, send_sizes: list[int], recv_sizes: list[int]) -> torch.Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    outgoing = x.split(send_sizes)
    arrived = {}
    for other in range(world):
        if other != rank:
            arrived[other] = x.new_empty(recv_sizes[other])
            requests = [dist.isend(outgoing[other], other), dist.irecv(arrived[other], other)]
            for request in requests:
                request.wait()
    while len(arrived) < world: pass
    return torch.cat([arrived[other] for other in range(world)])
