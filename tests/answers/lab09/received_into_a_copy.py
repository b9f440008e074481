# kind: wrong
# about: What is received is put into a copy of the cache.
# loses: move_cache_values
# says: "move_cache_values": "was not written"

# %% solution="move_cache"
def send_cache(cache, table, count, to):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    dist.send(torch.stack([cache.k.flatten(1, 2)[:, places], cache.v.flatten(1, 2)[:, places]]), to)


def receive_cache(cache, table, count, source):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    k, v = cache.k.flatten(1, 2).clone(), cache.v.flatten(1, 2).clone()
    both = torch.empty(2, *k[:, places].shape)
    dist.recv(both, source)
    k[:, places], v[:, places] = both
