# kind: wrong
# about: Gradients, already averaged, are divided by dp once more; with the usual eps of Adam nobody would see it.
# loses: zero_one_values, mesh_step_losses, save_once, load_continues
# says: "zero_one_values": "what gradients divided by dp once more would give"
# says: "mesh_step_losses": "Step 1 is right, so the update is not"

# %% edit="zero_one"
# replace
        grad = self.piece(self.flatten({name: p.grad for name, p in self.parameters.items()}))
# by
        grad = self.piece(self.flatten({name: p.grad for name, p in self.parameters.items()})) / self.count
