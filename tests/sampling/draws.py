"""The draws of noise that are compared with PyTorch."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

SEEDS = (0, 1, 1234, 2**31, 2**63 - 1)
# Drawn one after the other from one generator: the scalar path with and without a number left
# over, whole blocks, an incomplete last block, and each again after the others.
SHAPES = (
    (3,),
    (16,),
    (3,),
    (17,),
    (),
    (2, 5),
    (0,),
    (4, 9, 9),
    (15,),
    (1, 4, 64, 64),
    (1,),
    (2, 4, 128, 128),
    (7,),
)


def digest(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """SHA-256 of an array's bytes, as 32 numbers."""
    return np.frombuffer(hashlib.sha256(values.astype("<f4").tobytes()).digest(), dtype=np.uint8)
