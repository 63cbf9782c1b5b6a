"""Teach the text encoder the grammar before it meets the UNet.

    python train_text.py --state DIR --steps 1500

Linear heads read the last hidden state, from the end token on, and name every attribute of the
scene. The UNet's cross-attention then finds the attributes decodable from its first step, which
spares it the slow part of learning which colour belongs to which shape. The heads are thrown away.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import captions
import common
import draw
import numpy as np
import torch
from torch import Tensor, nn


def targets(scenes: draw.Scenes) -> Tensor:
    """The class of each attribute, int64 (n, 8); what a single-object scene lacks has class 0."""
    two = (scenes.relation >= 0).astype(np.int64)
    columns = (
        scenes.background,
        scenes.color[:, 0],
        scenes.shape[:, 0],
        scenes.cell[:, 0],
        scenes.size * (1 - two) + 3 * two,
        (scenes.color[:, 1] + 1) * two,
        (scenes.shape[:, 1] + 1) * two,
        scenes.relation + 1,
    )
    return torch.from_numpy(np.stack(columns, 1))


CLASSES = (12, 12, 8, 9, 4, 13, 9, 5)


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state", type=Path, required=True, help="folder for checkpoints and logs")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    tokenizer = captions.load_tokenizer(a.state / "tokenizer")
    model = captions.build_text_encoder(tokenizer)
    heads = nn.Linear(captions.WIDTH, sum(CLASSES))
    trained = [*model.parameters(), *heads.parameters()]
    optimizer = torch.optim.AdamW(trained, a.lr, betas=(0.9, 0.99), weight_decay=0.01)
    rng = np.random.default_rng(a.seed)
    for step in range(a.steps):
        scenes = draw.sample_training(rng, a.batch, 0.6)
        texts = [captions.training_caption(scenes, i, rng) for i in range(a.batch)]
        ids = torch.from_numpy(captions.tokenize(tokenizer, texts))
        read = heads(model(ids)[0])
        ended = torch.nonzero(ids == captions.end_token(tokenizer), as_tuple=True)
        parts = read[ended].split(CLASSES, 1)
        truth = targets(scenes)[ended[0]].unbind(1)
        value = torch.stack(
            [nn.functional.cross_entropy(part, t) for part, t in zip(parts, truth, strict=True)]
        ).sum()
        optimizer.param_groups[0]["lr"] = a.lr * common.rate(step / a.steps, step)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            right = torch.stack(
                [(p.argmax(1) == t).float().mean() for p, t in zip(parts, truth, strict=True)]
            )
            print(f"step {step + 1} loss {value.item():.4f} right {right.min():.3f}", flush=True)
    common.save(a.state / "text.pt", model.state_dict())


if __name__ == "__main__":
    main()
