# kind: wrong
# about: Only the keys move.
# loses: move_cache_values, move_cache_bytes
# says: "move_cache_values": "cache.v of the receiver"

# %% solution="move_cache"
def send_cache(cache, table, count, to):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    dist.send(cache.k.flatten(1, 2)[:, places], to)


def receive_cache(cache, table, count, source):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    k = cache.k.flatten(1, 2)
    both = torch.empty(k[:, places].shape)
    dist.recv(both, source)
    k[:, places] = both
