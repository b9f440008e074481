# kind: wrong
# about: Updates first and clips the gradients afterwards, when nobody reads them any more.
# loses: clip_step
# says: "clip_step": "not clipped at all"

# %% edit="clipped"
# replace
            clip_grad_norm([piece.grad for piece in self.pieces if piece.grad is not None], [], max_norm)
            self.optimizer.step()
# by
            self.optimizer.step()
            clip_grad_norm([piece.grad for piece in self.pieces if piece.grad is not None], [], max_norm)
