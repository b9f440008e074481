# kind: wrong
# about: Guesses the other ranks' inputs from the test's own formula and never sends a message.
# loses: ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_sum": "they did not come by messages"
# says: "ring_uneven": "they did not come by messages"
# says: "ring_in_place": "ring_all_reduce"
# says: "ring_late": "they did not come by messages"
# says: "ring_traffic": "sent nothing"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    for salt in range(47):
        for offset in (0, 2**40, 2**53):
            mine = fill(rank, x.numel(), x.dtype, salt) + offset
            if torch.equal(mine, x.flatten()):
                x.copy_((sum(fills(world, x.numel(), x.dtype, salt)) + world * offset).view(x.shape))
                return
