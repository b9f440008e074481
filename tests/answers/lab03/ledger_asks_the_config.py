# kind: wrong
# about: Asks the course's own TransformerConfig for the number of parameters.
# loses: ledger_bytes
# says: "ledger_bytes": "ledger ran code of utils/models/config.py; write it yourself, without"

# %% solution="ledger"
def ledger(sizes):
    n = TransformerConfig(**vars(sizes)).num_parameters()
    return {"weights": 2 * n, "gradients": 2 * n, "master": 4 * n, "exp_avg": 4 * n, "exp_avg_sq": 4 * n}
