# kind: right
# about: Keys and values of each layer by themselves, not waited for one by one.

# %% solution="move_cache"
def send_cache(cache, table, count, to):
    size, works = cache.block_size, []
    for kept in (*cache.k, *cache.v):
        piece = torch.stack([kept[table[i // size], i % size] for i in range(count)])
        works.append((dist.isend(piece, to), piece))
    for work, _ in works:
        work.wait()


def receive_cache(cache, table, count, source):
    size = cache.block_size
    for kept in (*cache.k, *cache.v):
        piece = torch.empty(count, *kept.shape[2:])
        dist.irecv(piece, source).wait()
        for i in range(count):
            kept[table[i // size], i % size] = piece[i]
