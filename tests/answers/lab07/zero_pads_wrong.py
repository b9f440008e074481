# kind: wrong
# about: Z07: pads by n % p in place of -n % p.
# loses: zero_one_values, zero_one_memory

# %% edit="zero_one"
# replace
        self.size = -(-self.numel // self.count)
# by
        self.size = (self.numel + self.numel % self.count) // self.count
