# kind: right
# about: The last block stays whole for its backward, which comes at once: one all-gather less.

# %% edit="zero_three"
# replace
        self.blocks[index].free()
# by
        if index < len(self.blocks) - 1:
            self.blocks[index].free()
