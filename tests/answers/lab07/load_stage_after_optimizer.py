# kind: wrong
# about: The optimizer loads before the stage has its new values, and its own copy stays the old one.
# loses: load_continues
# says: "load_continues": "steps later"

# %% solution="load"
def load(stage: ShardedStage, optimizer, mesh: Mesh, saved: dict[str, torch.Tensor]) -> None:
    def part(key, name):
        return shard_of(saved[key], stage.placements[name].dim, mesh.coordinate("tp"), mesh.size("tp"))

    state = {"step": saved["step"]}
    for name, parameter in stage.named_parameters():
        for key in (f"{name}/exp_avg", f"{name}/exp_avg_sq"):
            state[key] = part(key, name)
    optimizer.load_state(state)
    for name, parameter in stage.named_parameters():
        parameter.data.copy_(part(name, name))
