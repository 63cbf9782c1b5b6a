"""What the trainings share: parallel processes, optimisers, averaged weights, checkpoints."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

# Big freed blocks are kept instead of being returned to the system: without this every step pays
# for fresh pages again.
_MALLOC = {
    "MALLOC_TOP_PAD_": "268435456",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_MMAP_THRESHOLD_": "8589934592",
}


@dataclass(frozen=True)
class Worker:
    """One of the data-parallel processes."""

    rank: int
    world: int

    def average_(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the processes (a missing one counts as zero)."""
        if self.world == 1:
            return
        trained = list(parameters)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat)
        flat /= self.world
        for p, part in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
            p.grad = part.view_as(p)

    def agree(self, value: float) -> float:
        """The value of process 0, in all processes."""
        box = torch.tensor([value], dtype=torch.float64)
        if self.world > 1:
            dist.broadcast(box, 0)
        return float(box)


def _work(rank: int, world: int, store: str, main: Callable[..., None], args: Any) -> None:
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    main(Worker(rank, world), args)


def launch(main: Callable[..., None], args: Any, world: int) -> None:
    """Run `main(worker, args)` in `world` processes of one thread each."""
    os.environ.update(_MALLOC)
    with tempfile.TemporaryDirectory() as folder:
        spawn(_work, (world, f"{folder}/store", main, args), nprocs=world)


def _orthogonal(g: Tensor) -> Tensor:
    """Matrices g (k, m, n) with their singular values brought near 1 (Jordan et al. 2024, Muon)."""
    tall = g.shape[1] > g.shape[2]
    x = g.transpose(1, 2) if tall else g
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised updates for matrices and convolutions (flattened to matrices).

    Updates are scaled to the size that AdamW's have (Liu et al. 2025), so both take one rate.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient; equal shapes are done together."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p.grad)
                state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(state["momentum"], group["momentum"]).flatten(1)
                by_shape.setdefault((update.shape[0], update.shape[1]), []).append((p, update))
            for shape, items in by_shape.items():
                scale = 0.2 * max(shape) ** 0.5 * group["lr"]
                for (p, _), u in zip(
                    items, _orthogonal(torch.stack([u for _, u in items])), strict=True
                ):
                    p.sub_(u.view(p.shape), alpha=scale)


def optimizers(
    named: Iterable[tuple[str, nn.Parameter]], lr: float, muon: bool
) -> list[torch.optim.Optimizer]:
    """AdamW, and with `muon` Muon for every matrix that is neither an embedding nor an output."""
    trained = [(name, p) for name, p in named if p.requires_grad]
    plain = ("embedding", "conv_in", "conv_out", "quant_conv")

    def is_matrix(name: str, p: nn.Parameter) -> bool:
        return muon and p.ndim >= 2 and not any(word in name for word in plain)

    rest = [p for name, p in trained if not is_matrix(name, p)]
    made: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(rest, lr, betas=(0.9, 0.99), weight_decay=0.0)
    ]
    matrices = [p for name, p in trained if is_matrix(name, p)]
    if matrices:
        made.append(Muon(matrices, lr))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = lr
    return made


def update(steps: list[torch.optim.Optimizer], factor: float) -> None:
    """Step every optimiser at a fraction of its peak rate and clear the gradients."""
    for optimizer in steps:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


class Average:
    """An exponential moving average of parameters that starts as a plain mean."""

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float) -> None:
        self.live = list(parameters)
        self.mean = [p.detach().clone() for p in self.live]
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self) -> None:
        """Take in the present weights."""
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + 9))
        for mean, live in zip(self.mean, self.live, strict=True):
            mean.lerp_(live, 1 - decay)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the average with the live weights; call again to undo."""
        for p, m in zip(self.live, self.mean, strict=True):
            kept = p.clone()
            p.copy_(m)
            m.copy_(kept)


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint so that a crash leaves either the old one or the new one."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


class Clock:
    """Progress of a training that lasts a given time, over all its restarts."""

    def __init__(self, worker: Worker, minutes: float, spent: float = 0.0) -> None:
        self.worker = worker
        self.total = minutes * 60
        self.begin = time.monotonic() - spent

    @property
    def spent(self) -> float:
        """Seconds so far, restarts included; this process's own clock."""
        return time.monotonic() - self.begin

    def progress(self) -> float:
        """From 0 to 1, equal in all processes."""
        return self.worker.agree(min(1.0, self.spent / self.total))


def rate(progress: float, step: int, warmup: int = 100) -> float:
    """The learning rate over its peak: linear warm-up by steps, then a cosine to 2 %."""
    cosine = 0.5 * (1 + math.cos(progress * math.pi))
    return min(1.0, (step + 1) / warmup) * (0.02 + 0.98 * cosine)
