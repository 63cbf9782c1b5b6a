"""Train the UNet and the text encoder of `shapes` together, on the latents of make_latents.py.

    python train_unet.py --state DIR --minutes 80

An interrupted training goes on where it stopped. DIR/unet.pt holds live and averaged weights,
DIR/unet.log the loss, pictures a second and progress.
"""

# diffusers declares its classes too loosely for these checks.
# pyright: reportCallIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import captions
import common
import make_latents
import numpy as np
import torch
from diffusers import UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from torch import Tensor, nn

EMPTY_SHARE = 0.10
STEPS = 1000
SNR_TOP = 5.0  # Min-SNR weighting (Hang et al. 2023)
SNR_FLOOR = 0.1  # keeps the noisy steps, which decide the layout, from being neglected


def build() -> UNet2DConditionModel:
    """The UNet: 16x16 latents down to 2x2, cross-attention at 8x8, 4x4 and 2x2."""
    unet = UNet2DConditionModel(
        sample_size=16,
        down_block_types=(
            "DownBlock2D",
            "CrossAttnDownBlock2D",
            "CrossAttnDownBlock2D",
            "DownBlock2D",
        ),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(64, 80, 80, 80),
        layers_per_block=1,
        cross_attention_dim=captions.WIDTH,
        attention_head_dim=4,
        norm_num_groups=16,
    )
    # The plain attention: on the CPU the backward pass of the fused one is much slower.
    unet.set_attn_processor(AttnProcessor())
    return unet.to(memory_format=torch.channels_last)


def signal_shares() -> Tensor:
    """The cumulative product of alphas of SD 1.5's schedule, float32 (1000,)."""
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, STEPS, dtype=torch.float64) ** 2
    return torch.cumprod(1 - betas, 0).float()


def loss_weights(shares: Tensor) -> Tensor:
    """The weight of the squared noise error at each time step."""
    snr = shares / (1 - shares)
    return (snr + SNR_FLOOR).clamp(max=SNR_TOP) / snr


@dataclass(frozen=True)
class Options:
    """The command line."""

    state: Path
    minutes: float
    batch: int
    lr: float
    text_lr: float
    seed: int


def train(worker: common.Worker, options: Options) -> None:
    """The training, in one of the parallel processes."""
    torch.manual_seed(options.seed)
    tokenizer = captions.load_tokenizer(options.state / "tokenizer")
    latents, scenes = make_latents.load(options.state)
    rng = np.random.default_rng(options.seed)
    texts = [captions.training_caption(scenes, i, rng) for i in range(len(scenes))]
    tokens = torch.from_numpy(captions.tokenize(tokenizer, texts))
    empty = torch.from_numpy(captions.tokenize(tokenizer, [""]))
    unet, text = build(), captions.build_text_encoder(tokenizer)
    text.load_state_dict(torch.load(options.state / "text.pt"))
    trained = [*unet.parameters(), *text.parameters()]
    steps = [
        *common.optimizers(unet.named_parameters(), options.lr, muon=True),
        *common.optimizers(text.named_parameters(), options.text_lr, muon=False),
    ]
    average = common.Average(trained, 0.999)
    path = options.state / "unet.pt"
    step, spent = 0, 0.0
    if path.exists():
        saved = torch.load(path, weights_only=False)
        unet.load_state_dict(saved["unet"])
        text.load_state_dict(saved["text"])
        for optimizer, state in zip(steps, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        average.mean = [m.clone() for m in saved["average"]]
        average.updates, step, spent = saved["updates"], saved["step"], saved["spent"]
    clock = common.Clock(worker, options.minutes, spent)
    log = (options.state / "unet.log").open("a")
    shares = signal_shares()
    weights = loss_weights(shares)
    begin, counted, total = time.monotonic(), 0, 0.0

    def keep() -> None:
        average.swap()
        mean = {
            "unet": {k: v.clone() for k, v in unet.state_dict().items()},
            "text": {k: v.clone() for k, v in text.state_dict().items()},
        }
        average.swap()
        common.save(
            path,
            {
                "unet": unet.state_dict(),
                "text": text.state_dict(),
                "mean": mean,
                "average": average.mean,
                "updates": average.updates,
                "optimizers": [o.state_dict() for o in steps],
                "step": step,
                "spent": clock.spent,
            },
        )

    while (progress := clock.progress()) < 1:
        draws = torch.Generator().manual_seed((options.seed * 64 + worker.rank) * 10**7 + step)
        rows = torch.randint(len(latents), (options.batch,), generator=draws)
        clean = latents[rows].float()
        ids = tokens[rows]
        ids[torch.rand(options.batch, generator=draws) < EMPTY_SHARE] = empty
        place = torch.rand(options.batch, generator=draws)
        noisy = torch.rand(options.batch, generator=draws) < 0.5
        times = (torch.where(noisy, place.sqrt(), place) * STEPS).long()
        noise = torch.randn(clean.shape, generator=draws)
        share = shares[times, None, None, None]
        mixed = share.sqrt() * clean + (1 - share).sqrt() * noise
        mixed = mixed.contiguous(memory_format=torch.channels_last)
        guess = unet(mixed, times, text(ids)[0]).sample
        value = (weights[times] * (guess - noise).square().mean((1, 2, 3))).mean()
        value.backward()
        worker.average_(trained)
        nn.utils.clip_grad_norm_(trained, 1.0)
        common.update(steps, common.rate(progress, step, warmup=200))
        average.update()
        step += 1
        counted += options.batch * worker.world
        total += value.item()
        if worker.rank == 0 and step % 100 == 0:
            pace = counted / (time.monotonic() - begin)
            print(
                f"step {step} loss {total / 100:.5f} {pace:.0f} pictures/s "
                f"minutes left {(1 - progress) * options.minutes:.1f}",
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
    parser.add_argument("--minutes", type=float, default=80.0)
    parser.add_argument("--batch", type=int, default=24, help="pictures a step and process")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--text-lr", type=float, default=3e-4)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    options = Options(a.state, a.minutes, a.batch, a.lr, a.text_lr, a.seed)
    common.launch(train, options, a.processes)


if __name__ == "__main__":
    main()
