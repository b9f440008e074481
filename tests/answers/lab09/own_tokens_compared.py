# kind: wrong
# about: A hit is compared with the block's own tokens only; what comes before it may have collided.
# loses: blocks_verified
# says: "blocks_verified": "must be compared from the first token on"
# edits: helper_methods

# %% edit="block_manager"
# replace
            yield key, tuple(tokens[:end])
# by
            yield key, tuple(tokens[end - self.block_size : end])
# replace
            if key not in self.found and block not in self.holds:
# by
            if block not in self.holds:
                if key in self.found:
                    del self.holds[self.found[key]]
