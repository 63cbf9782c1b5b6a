"""Train the VAE of `shapes`: crops, then whole pictures, then the decoder alone.

    python train_vae.py --state DIR --phase crops --minutes 20
    python train_vae.py --state DIR --phase full --minutes 8
    python train_vae.py --state DIR --phase standardise
    python train_vae.py --state DIR --phase decoder --minutes 20

Each phase starts from the weights the one before left in DIR/vae.pt and writes there; a phase that
was interrupted goes on where it stopped. `standardise` only rescales: it folds the mean and the
deviation of the latents into the convolutions around them, so that each channel has mean 0 and
deviation 1. From then on the encoder does not change any more, so the UNet's latents can be made
while `decoder` still polishes the pictures.
"""

# diffusers declares its classes too loosely for these checks.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportOptionalMemberAccess=false
# pyright: reportOptionalSubscript=false, reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import common
import draw
import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import Tensor, nn

KL_WEIGHT = 2e-5
EDGE_WEIGHT = 6.0
PHASES = ("crops", "full", "standardise", "decoder")
DECODER_NOISE = 0.1  # of the latents' standard deviation, at most


def build() -> AutoencoderKL:
    """The VAE: 8 times smaller latents of 4 channels, one norm group, no attention."""
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 16, 32, 64),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=1,
        sample_size=draw.SIDE,
        mid_block_add_attention=False,
    )
    _keep_constants(vae)
    return vae.to(memory_format=torch.channels_last)


@torch.no_grad()
def _keep_constants(vae: AutoencoderKL) -> None:
    """Initialise so that flat colour survives: residual branches start small, samplers as blurs."""
    blur = torch.tensor([0.25, 0.5, 0.25])
    for name, module in vae.named_modules():
        if not isinstance(module, nn.Conv2d):
            continue
        if name.endswith("conv2"):
            module.weight.mul_(0.1)
        elif "samplers" in name:
            module.weight.mul_(0.5)
            for c in range(module.out_channels):
                module.weight[c, c] += blur[:, None] * blur[None, :]
        elif name.endswith("conv_shortcut"):
            nn.init.orthogonal_(module.weight)


def batch(rng: np.random.Generator, n: int, whole: bool) -> Tensor:
    """Pictures in -1..1: whole ones, or 64-pixel crops around an object's edge."""
    placed = draw.place(draw.sample(rng, n, 0.5), rng)
    if whole:
        picture = draw.draw(placed)
    else:
        side = 64
        rows = np.arange(n)
        k = rng.integers(2, size=n) * (placed.radius[:, 1] > 0)
        angle = rng.uniform(0, 2 * np.pi, n)
        edge = np.stack([np.cos(angle), np.sin(angle)], 1) * placed.radius[rows, k, None] * 0.8
        middle = placed.center[rows, k] + edge + rng.uniform(-12, 12, (n, 2))
        origin = np.clip(np.rint(middle - side / 2), 0, draw.SIDE - side).astype(np.float32)
        picture = draw.draw(placed, side, origin)
    return torch.from_numpy(picture / np.float32(127.5) - 1)


def loss(made: Tensor, target: Tensor) -> Tensor:
    """Mean absolute error plus squared error, pixels near an edge counted more."""
    near = nn.functional.max_pool2d(target, 5, 1, 2) + nn.functional.max_pool2d(-target, 5, 1, 2)
    weight = 1 + EDGE_WEIGHT * near.amax(1, keepdim=True).clamp(max=1)
    weight = weight / weight.mean()
    error = (made - target).abs()
    return (weight * (error + 2 * error.square())).mean()


@torch.no_grad()
def standardise(state: Path, pictures: int = 2000) -> None:
    """Fold each latent channel's mean and deviation into the 1x1 convolutions around it."""
    path = state / "vae.pt"
    saved = torch.load(path, weights_only=False)
    vae = build()
    vae.load_state_dict(saved["mean"])
    rng = np.random.default_rng(12345)
    parts = [vae.encode(batch(rng, 50, True)).latent_dist.mean for _ in range(pictures // 50)]
    latents = torch.cat(parts)
    mean, deviation = latents.mean((0, 2, 3)), latents.std((0, 2, 3))
    encode, decode = vae.quant_conv, vae.post_quant_conv
    encode.bias[:4] = (encode.bias[:4] - mean) / deviation
    encode.weight[:4] /= deviation[:, None, None, None]
    encode.bias[4:] -= 2 * deviation.log()
    decode.bias += decode.weight[:, :, 0, 0] @ mean
    decode.weight *= deviation[None, :, None, None]
    common.save(path, {"phase": "standardise", "mean": vae.state_dict()})
    print(f"was: mean {mean.tolist()}, deviation {deviation.tolist()}")


@dataclass(frozen=True)
class Options:
    """The command line."""

    state: Path
    phase: str
    minutes: float
    batch: int
    lr: float
    muon: bool
    seed: int


def train(worker: common.Worker, options: Options) -> None:
    """One phase, in one of the parallel processes."""
    torch.manual_seed(options.seed)
    path = options.state / "vae.pt"
    vae = build()
    saved = torch.load(path, weights_only=False) if path.exists() else None
    resumed = saved is not None and saved["phase"] == options.phase
    if saved is not None:
        vae.load_state_dict(saved["live"] if resumed else saved["mean"])
    if options.phase == "decoder":
        vae.encoder.requires_grad_(False)
        vae.quant_conv.requires_grad_(False)
    trained = [p for p in vae.parameters() if p.requires_grad]
    steps = common.optimizers(vae.named_parameters(), options.lr, options.muon)
    average = common.Average(vae.parameters(), 0.998)
    step, spent = 0, 0.0
    if resumed:
        for optimizer, state in zip(steps, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        average.mean = [m.clone() for m in saved["average"]]
        average.updates, step, spent = saved["updates"], saved["step"], saved["spent"]
    clock = common.Clock(worker, options.minutes, spent)
    log = (options.state / "vae.log").open("a")
    noise = torch.Generator().manual_seed(options.seed * 1000 + worker.rank + step)
    begin, counted, total = time.monotonic(), 0, 0.0

    def keep() -> None:
        live = {k: v.clone() for k, v in vae.state_dict().items()}
        average.swap()
        mean = {k: v.clone() for k, v in vae.state_dict().items()}
        average.swap()
        common.save(
            path,
            {
                "phase": options.phase,
                "live": live,
                "mean": mean,
                "average": average.mean,
                "updates": average.updates,
                "optimizers": [o.state_dict() for o in steps],
                "step": step,
                "spent": clock.spent,
            },
        )

    while (progress := clock.progress()) < 1:
        rng = np.random.default_rng((options.seed, worker.rank, step, len(options.phase)))
        pictures = batch(rng, options.batch, options.phase != "crops")
        pictures = pictures.contiguous(memory_format=torch.channels_last)
        posterior = vae.encode(pictures).latent_dist
        if options.phase == "decoder":
            mean = posterior.mean
            level = DECODER_NOISE * torch.rand(len(mean), 1, 1, 1, generator=noise) * mean.std()
            made = vae.decode(mean + level * torch.randn(mean.shape, generator=noise)).sample
            value = loss(made, pictures)
        else:
            made = vae.decode(posterior.sample(noise)).sample
            value = loss(made, pictures) + KL_WEIGHT * posterior.kl().sum() / posterior.mean.numel()
        value.backward()
        worker.average_(trained)
        nn.utils.clip_grad_norm_(trained, 1.0)
        common.update(steps, common.rate(progress, step))
        average.update()
        step += 1
        counted += options.batch * worker.world
        total += value.item()
        if worker.rank == 0 and step % 50 == 0:
            pace = counted / (time.monotonic() - begin)
            print(
                f"{options.phase} step {step} loss {total / 50:.5f} {pace:.0f} pictures/s "
                f"progress {progress:.3f}",
                file=log,
                flush=True,
            )
            begin, counted, total = time.monotonic(), 0, 0.0
        if worker.rank == 0 and step % 500 == 0:
            keep()
    if worker.rank == 0:
        keep()


def main() -> None:
    """Parse the command line and start the processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state", type=Path, required=True, help="folder for checkpoints and logs")
    parser.add_argument("--phase", choices=PHASES, required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=16, help="pictures a step and process")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--no-muon", action="store_true", help="AdamW for everything")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    a.state.mkdir(parents=True, exist_ok=True)
    options = Options(a.state, a.phase, a.minutes, a.batch, a.lr, not a.no_muon, a.seed)
    if options.phase == "standardise":
        standardise(options.state)
        return
    common.launch(train, options, a.processes)


if __name__ == "__main__":
    main()
