# kind: right
# about: Blocks are registered when their tokens are scheduled, as the pass writes before it reads; lists are rebuilt.
# edits: helper_methods

# %% edit="scheduler"
# replace
            count = min(left, len(request.tokens) - request.computed)
# by
            count = min(left, len(request.tokens) - request.computed)
            self.blocks.register(request.tokens[: request.computed + count], request.blocks)
