"""Score drawings, the VAE's reconstructions, or a finished model's pictures with the checker.

    python evaluate.py drawings
    python evaluate.py vae --model DIR
    python evaluate.py pictures --model DIR --sheet sheet.png

DIR is what export.py wrote. Prompts are held out: their captions never occur in training.
"""

# diffusers declares its classes too loosely for these checks.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import time
from pathlib import Path

import checker
import draw
import numpy as np
import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline
from numpy.typing import NDArray
from PIL import Image

Bytes = NDArray[np.uint8]


def held_out_scenes(singles: int, pairs: int, seed: int) -> draw.Scenes:
    """Different scenes whose captions never occur in training."""
    rng = np.random.default_rng(seed)
    kept = []
    for count, share in ((singles, 0.0), (pairs, 1.0)):
        scenes = draw.sample(rng, 80 * count + 80, share)
        scenes = scenes.take(draw.held_out(scenes))
        captions = [draw.caption(scenes, i) for i in range(len(scenes))]
        first = np.sort(np.unique(captions, return_index=True)[1])
        kept.append(scenes.take(first[:count]))
    return draw.join(kept)


def to_bytes(pictures: torch.Tensor) -> Bytes:
    """Pictures (n, 3, h, w) in -1..1 to bytes (n, h, w, 3)."""
    scaled = (pictures.clamp(-1, 1) + 1) * 127.5
    return scaled.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def sheet(pictures: Bytes, path: Path, columns: int = 10) -> None:
    """Write pictures (n, h, w, 3) as one contact sheet; an incomplete last row is left out."""
    rows = len(pictures) // columns
    _, h, w, c = pictures.shape
    grid = pictures[: rows * columns].reshape(rows, columns, h, w, c).transpose(0, 2, 1, 3, 4)
    Image.fromarray(grid.reshape(rows * h, columns * w, c)).save(path)


def drawings(scenes: draw.Scenes) -> Bytes:
    """The scenes as the drawing code draws them."""
    drawn = draw.draw(draw.place(scenes, np.random.default_rng(1)))
    return np.rint(drawn).astype(np.uint8).transpose(0, 2, 3, 1)


@torch.no_grad()
def reconstructions(vae: AutoencoderKL, pictures: Bytes, noise: float) -> Bytes:
    """Pictures encoded and decoded, with noise of the given deviation added to scaled latents."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2) / 127.5 - 1
    made = []
    for part in pixels.split(50):
        z = vae.encode(part).latent_dist.mean
        z += noise / vae.config.scaling_factor * torch.randn(z.shape, generator=generator)
        made.append(vae.decode(z).sample)
    return to_bytes(torch.cat(made))


@torch.no_grad()
def generate(
    pipe: StableDiffusionPipeline,
    scheduler: DDIMScheduler,
    prompts: list[str],
    *,
    steps: int,
    guidance: float,
    seed: int,
) -> Bytes:
    """Pictures for the prompts, from one stream of noise; batches as diffusers would make them."""
    generator = torch.Generator().manual_seed(seed)
    side = pipe.unet.config.sample_size
    made = []
    for start in range(0, len(prompts), 50):
        part = prompts[start : start + 50]
        wanted, unwanted = pipe.encode_prompt(part, "cpu", 1, True, [""] * len(part))
        states = torch.cat([unwanted, wanted])
        scheduler.set_timesteps(steps)
        latents = torch.randn((len(part), 4, side, side), generator=generator)
        for t in scheduler.timesteps:
            plain, guided = pipe.unet(torch.cat([latents] * 2), t, states).sample.chunk(2)
            guess = plain + guidance * (guided - plain)
            latents = scheduler.step(guess, t, latents).prev_sample
        made.append(pipe.vae.decode(latents / pipe.vae.config.scaling_factor).sample)
    return to_bytes(torch.cat(made))


def main() -> None:
    """Parse the command line, make the pictures, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("drawings", "vae", "pictures"))
    parser.add_argument("--model", type=Path)
    parser.add_argument("--singles", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7, help="of the choice of prompts")
    parser.add_argument("--noise", type=float, default=0.0, help="added to the VAE's latents")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=4.0)
    parser.add_argument("--spacing", choices=("leading", "trailing", "linspace"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sheet", type=Path, help="write the pictures here")
    parser.add_argument("--failures", action="store_true", help="list what went wrong")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    scenes = held_out_scenes(a.singles, a.pairs, a.seed)
    prompts = [draw.caption(scenes, i) for i in range(len(scenes))]
    begin = time.monotonic()
    pictures = drawings(scenes)
    if a.what == "vae":
        drawn = pictures
        vae = AutoencoderKL.from_pretrained(a.model / "vae", torch_dtype=torch.float32)
        pictures = reconstructions(vae, drawn, a.noise)
        error = np.square((drawn.astype(np.float64) - pictures) / 255).mean()
        print(f"psnr {-10 * np.log10(error):.2f} dB")
    elif a.what == "pictures":
        pipe = StableDiffusionPipeline.from_pretrained(a.model, torch_dtype=torch.float32)
        changed = {"timestep_spacing": a.spacing} if a.spacing else {}
        scheduler = DDIMScheduler.from_config(pipe.scheduler.config, **changed)
        pictures = generate(
            pipe, scheduler, prompts, steps=a.steps, guidance=a.guidance, seed=a.seed
        )
    made = time.monotonic()
    table = checker.evaluate(pictures, prompts)
    print(table)
    print(f"made in {made - begin:.1f} s, checked in {time.monotonic() - made:.1f} s")
    if a.failures:
        for prompt, score in zip(prompts, table.scores, strict=True):
            if not score.all:
                wrong = [name for name, right in score.attributes.items() if not right]
                print(f"{prompt}: wrong {', '.join(wrong)}")
    if a.sheet:
        sheet(pictures, a.sheet)


if __name__ == "__main__":
    main()
