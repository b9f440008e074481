# kind: wrong
# about: Hands the pieces over as replicated gradients: each rank adds them to the sum that it already got from nobody.
# loses: clip_step
# says: "clip_step": "ZeroTwo with clipped(sgd, 0.3) (p = 2), rank 0, gradient used in step 1"

# %% edit="clipped"
# replace
            clip_grad_norm([piece.grad for piece in self.pieces if piece.grad is not None], [], max_norm)
# by
            clip_grad_norm([], [piece.grad for piece in self.pieces if piece.grad is not None], max_norm)
