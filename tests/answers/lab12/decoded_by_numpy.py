# kind: right
# about: numpy reads the bytes.

# %% solution="decode"
import numpy as np


def decode_q4_1(blocks):
    rows = np.ascontiguousarray(blocks.numpy())
    head = rows[:, :4].copy().view("<f2").astype(np.float32)
    levels = np.concatenate([rows[:, 4:] % 16, rows[:, 4:] // 16], axis=1).astype(np.float32)
    return torch.from_numpy(levels * head[:, :1] + head[:, 1:])


def decode_q8_0(blocks):
    rows = np.ascontiguousarray(blocks.numpy())
    return torch.from_numpy(rows[:, 2:].copy().view(np.int8).astype(np.float32) * rows[:, :2].copy().view("<f2"))
