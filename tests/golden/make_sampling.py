"""Make noise.npz and samplers.npz anew with PyTorch and diffusers (extra: parity).

Run from the repository root: python -m tests.golden.make_sampling
"""

from __future__ import annotations

from pathlib import Path

import diffusers
import numpy as np
import torch

from tests.sampling.draws import SEEDS, SHAPES, digest
from tests.sampling.reference import reference
from tests.sampling.runs import golden_cases

HERE = Path(__file__).parent


def make_noise() -> None:
    ends = np.full((len(SEEDS), len(SHAPES), 8), np.nan, dtype=np.float32)
    digests = np.zeros((len(SEEDS), len(SHAPES), 32), dtype=np.uint8)
    for i, seed in enumerate(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        for j, shape in enumerate(SHAPES):
            values = torch.randn(shape, generator=generator).numpy()
            flat = values.reshape(-1)
            both = np.concatenate([flat[:4], flat[-4:]])
            ends[i, j, : len(both)] = both
            digests[i, j] = digest(values)
    np.savez_compressed(HERE / "noise.npz", ends=ends, digests=digests)


def make_samplers() -> None:
    cases = golden_cases()
    latents = np.stack([reference(case, torch, diffusers) for case in cases])
    names = np.array([case.name for case in cases])
    np.savez_compressed(HERE / "samplers.npz", names=names, latents=latents)


if __name__ == "__main__":
    diffusers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    make_noise()
    make_samplers()
