# kind: wrong
# about: Norms without their weights.
# loses: forward_values, served_tokens, served_file
# says: "forward_values": "the norms' weights were left out"

# %% edit="forward"
# replace
        return F.rms_norm(x, (config.hidden,), own[f"{name}.weight"], config.eps)
# by
        return F.rms_norm(x, (config.hidden,), None, config.eps)
