# kind: wrong
# about: Every piece is clipped to max_norm by itself, as if each were a model of its own.
# loses: clip_step
# says: "clip_step": "ZeroTwo with clipped(sgd, 0.3) (p = 2), rank 0, gradient used in step 1"

# %% edit="clipped"
# replace
            clip_grad_norm([piece.grad for piece in self.pieces if piece.grad is not None], [], max_norm)
# by
            for piece in self.pieces:
                piece.grad *= min(1.0, max_norm / (float(piece.grad.norm()) + 1e-6))
