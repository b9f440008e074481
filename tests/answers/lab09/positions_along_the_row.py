# kind: wrong
# about: Positions count along the row of all requests (K01's cousin).
# loses: engine_outputs
# says: "engine_outputs": "alone it gets"

# %% edit="engine"
# replace
        logits = self.model(torch.tensor([tokens]), torch.tensor([positions]), attention=attention)
# by
        logits = self.model(torch.tensor([tokens]), torch.arange(len(tokens))[None], attention=attention)
