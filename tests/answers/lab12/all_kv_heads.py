# kind: wrong
# about: The cache has room for all ranks' KV heads.
# loses: served_tokens, served_file
# says: "served_tokens": "times what"

# %% edit="serve"
# replace
    cache = KVBlocks(local, num_blocks, block_size)
# by
    cache = KVBlocks(config, num_blocks, block_size)
    local = local.kv_heads
    cache.k, cache.v, cache.all = cache.k[:, :, :, :local], cache.v[:, :, :, :local], (cache.k, cache.v)
    KVBlocks.nbytes = property(lambda self: sum(one.untyped_storage().nbytes() for one in (self.k, self.v)))
