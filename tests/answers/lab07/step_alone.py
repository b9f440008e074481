# kind: wrong
# about: Every rank has the whole model and the whole batch, trains alone and cuts its part out: right values, nothing parallel.
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "what one rank works out alone is not parallel"
# says: "mesh_step_losses": "what one rank works out alone is not parallel"

# %% solution="mesh_step"
alone = {}


def mesh_step(stage, mesh, optimizer, tokens, targets, micro_batches, max_norm=None):
    if "model" not in alone:
        model = alone["model"] = whole_model(stage.config, next(stage.parameters()).dtype)
        plain = type(optimizer) is not ZeroOne
        parameters = list(model.parameters())
        alone["adam"] = torch.optim.SGD(parameters, 0.5) if plain else torch.optim.Adam(parameters, LR, eps=EPS)
    model, adam = alone["model"], alone["adam"]
    adam.zero_grad()
    loss = model.loss(tokens, targets)
    loss.backward()
    if max_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    whole = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, parameter in stage.named_parameters():
        parameter.grad = mine(whole[name], stage.placements[name], mesh)
    adam.step()
    optimizer.step()
    return loss.item()
