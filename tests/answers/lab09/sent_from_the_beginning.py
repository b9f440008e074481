# kind: wrong
# about: Sends the first slots of the cache, whatever the table says.
# loses: move_cache_values
# says: "move_cache_values": "is wrong"

# %% solution="move_cache"
def send_cache(cache, table, count, to):
    places = torch.arange(count)
    dist.send(torch.stack([cache.k.flatten(1, 2)[:, places], cache.v.flatten(1, 2)[:, places]]), to)


def receive_cache(cache, table, count, source):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    k, v = cache.k.flatten(1, 2), cache.v.flatten(1, 2)
    both = torch.empty(2, *k[:, places].shape)
    dist.recv(both, source)
    k[:, places], v[:, places] = both
