# kind: wrong
# about: Whole blocks are sent, slots without content among them, and how many they are.
# loses: move_cache_bytes
# says: "move_cache_bytes": "whole blocks were sent"

# %% solution="move_cache"
def send_cache(cache, table, count, to):
    blocks = torch.tensor(table[: -(-count // cache.block_size)])
    both = torch.stack([cache.k[:, blocks], cache.v[:, blocks]]).flatten(2, 3)
    dist.send(torch.tensor([both.shape[2]]), to)
    dist.send(both, to)


def receive_cache(cache, table, count, source):
    places = torch.tensor([table[i // cache.block_size] * cache.block_size + i % cache.block_size for i in range(count)])
    k, v = cache.k.flatten(1, 2), cache.v.flatten(1, 2)
    size = torch.empty(1, dtype=torch.long)
    dist.recv(size, source)
    both = torch.empty(2, k.shape[0], int(size), *k.shape[2:])
    dist.recv(both, source)
    k[:, places], v[:, places] = both[:, :, :count]
