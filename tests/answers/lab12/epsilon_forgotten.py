# kind: wrong
# about: torch's own eps in the norms.
# loses: forward_values
# says: "forward_values": "eps of the norms is config.eps"

# %% edit="forward"
# replace
        return F.rms_norm(x, (config.hidden,), own[f"{name}.weight"], config.eps)
# by
        return F.rms_norm(x, (config.hidden,), own[f"{name}.weight"])
