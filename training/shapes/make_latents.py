"""Draw and encode the pictures that the UNet learns from, so that its steps do neither.

    python make_latents.py --state DIR --shards 12

Each shard is a file of 8192 latents with their scenes. Shards that exist are kept.
"""

# diffusers declares its classes too loosely for these checks.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import common
import draw
import numpy as np
import torch
import train_vae

SHARD = 8192
PAIR_SHARE = 0.55


@dataclass(frozen=True)
class Options:
    """The command line."""

    state: Path
    shards: int


@torch.no_grad()
def make(worker: common.Worker, options: Options) -> None:
    """Write the shards whose turn is this process's."""
    vae = train_vae.build().eval()
    vae.load_state_dict(torch.load(options.state / "vae.pt", weights_only=False)["mean"])
    folder = options.state / "latents"
    for number in range(worker.rank, options.shards, worker.world):
        path = folder / f"{number:03d}.npz"
        if path.exists():
            continue
        begin = time.monotonic()
        rng = np.random.default_rng((99, number))
        scenes = draw.sample_training(rng, SHARD, PAIR_SHARE)
        latents = np.empty((SHARD, 4, draw.SIDE // 8, draw.SIDE // 8), np.float16)
        for start in range(0, SHARD, 32):
            rows = slice(start, start + 32)
            picture = draw.draw(draw.place(scenes.take(rows), rng)) / np.float32(127.5) - 1
            pixels = torch.from_numpy(picture).contiguous(memory_format=torch.channels_last)
            latents[rows] = vae.encode(pixels).latent_dist.mean.numpy()
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(file, latents=latents, **asdict(scenes))
        partial.replace(path)
        print(f"{path.name} {SHARD / (time.monotonic() - begin):.0f} pictures/s", flush=True)


def load(state: Path) -> tuple[torch.Tensor, draw.Scenes]:
    """All the latents there are, float16 (n, 4, 16, 16), and their scenes."""
    files = [np.load(path) for path in sorted((state / "latents").glob("*.npz"))]
    names = draw.Scenes.__dataclass_fields__
    scenes = draw.join([draw.Scenes(**{name: file[name] for name in names}) for file in files])
    return torch.from_numpy(np.concatenate([file["latents"] for file in files])), scenes


def main() -> None:
    """Parse the command line and start the processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state", type=Path, required=True, help="folder for checkpoints and logs")
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--processes", type=int, default=2)
    a = parser.parse_args()
    (a.state / "latents").mkdir(parents=True, exist_ok=True)
    common.launch(make, Options(a.state, a.shards), a.processes)


if __name__ == "__main__":
    main()
