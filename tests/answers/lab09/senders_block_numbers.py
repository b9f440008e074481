# kind: wrong
# about: The sender's table is sent along, and used by the receiver.
# loses: move_cache_values, move_cache_bytes
# says: "move_cache_values": "was"

# %% solution="move_cache"
def send_cache(cache, table, count, to):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    dist.send(places, to)
    dist.send(torch.stack([cache.k.flatten(1, 2)[:, places], cache.v.flatten(1, 2)[:, places]]), to)


def receive_cache(cache, table, count, source):
    k, v = cache.k.flatten(1, 2), cache.v.flatten(1, 2)
    places = torch.empty(count, dtype=torch.long)
    dist.recv(places, source)
    both = torch.empty(2, k.shape[0], count, *k.shape[2:])
    dist.recv(both, source)
    places = places.clamp(max=k.shape[1] - 1)
    k[:, places], v[:, places] = both
