# kind: wrong
# about: Uses a built-in broadcast.
# loses: move_cache_bytes
# says: "move_cache_bytes": "broadcast"

# %% solution="move_cache"
def send_cache(cache, table, count, to):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    dist.broadcast(torch.stack([cache.k.flatten(1, 2)[:, places], cache.v.flatten(1, 2)[:, places]]), dist.get_rank())


def receive_cache(cache, table, count, source):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    k, v = cache.k.flatten(1, 2), cache.v.flatten(1, 2)
    both = torch.empty(2, *k[:, places].shape)
    dist.broadcast(both, source)
    k[:, places], v[:, places] = both
