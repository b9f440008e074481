# kind: wrong
# about: Only layer 0 moves.
# loses: move_cache_values, move_cache_bytes
# says: "move_cache_values": "layer 1, block 1, slot 0 was not written"

# %% solution="move_cache"
def send_cache(cache, table, count, to):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    dist.send(torch.stack([cache.k.flatten(1, 2)[:1, places], cache.v.flatten(1, 2)[:1, places]]), to)


def receive_cache(cache, table, count, source):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    k, v = cache.k.flatten(1, 2), cache.v.flatten(1, 2)
    both = torch.empty(2, *k[:1, places].shape)
    dist.recv(both, source)
    k[:1, places], v[:1, places] = both
