# kind: wrong
# about: Each rank clips its pieces with the norm of these alone (Z09): the ranks scale by different factors.
# loses: clip_step
# says: "clip_step": "ZeroTwo with clipped(sgd, 0.3) (p = 2), rank 0, gradient used in step 1"

# %% edit="clipped"
# replace
            clip_grad_norm([piece.grad for piece in self.pieces if piece.grad is not None], [], max_norm)
# by
            owned = [piece.grad for piece in self.pieces]
            norm = torch.cat([grad.flatten() for grad in owned]).norm()
            for grad in owned:
                grad *= min(1.0, max_norm / (norm + 1e-6))
