# kind: wrong
# about: Gives the crossover in float32 elements, not in bytes.
# loses: predict
# says: "predict": "elements or bytes?"

# %% solution="crossover_bytes"
def crossover_bytes(world, alpha, beta):
    rounds, steps = math.ceil(math.log2(world)), world - 1
    if steps <= rounds:
        return 0.0
    return alpha * (steps - rounds) / (beta * (rounds - steps / world)) / 4
