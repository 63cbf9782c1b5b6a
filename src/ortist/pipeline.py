"""Pipeline: open a model, run a prompt. Read `__call__` for the table of contents of a run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ortist.bundle.read import Bundle
from ortist.decode import decode
from ortist.denoise import denoise
from ortist.encode import encode
from ortist.events import (
    OnEvent,
    Stage,
    StageAdvanced,
    StageDone,
    StageStarted,
    StepDone,
    ignore_event,
)
from ortist.families.registry import find_family
from ortist.plan import Note, Plan, resolve
from ortist.prompt.tokens import ClipTokenizer
from ortist.providers.registry import choose_provider
from ortist.record import Provenance, Record, make_record, save_png, versions
from ortist.request import Request
from ortist.runtime.engine import Engine
from ortist.runtime.session import available_providers, runtime_version
from ortist.sampling import SchedulerConfig, StepRow
from ortist.source import open_source


@dataclass(frozen=True, eq=False)
class Result:
    """What a run gives back.

    Attributes:
        images: the pictures, RGB.
        latents: float32 (n, c, height / f, width / f), as the denoiser left them.
        record: everything needed to make the pictures again.
    """

    images: list[Image.Image]
    latents: NDArray[np.float32]
    record: Record

    def save(self, path: str | Path, index: int = 0, *, overwrite: bool = False) -> None:
        """Write picture `index` as a PNG that carries its settings.

        Raises:
            OutputFailed: the file exists and `overwrite` is false, or it cannot be written.
        """
        save_png(self.images[index], Path(path), self.record, index, overwrite=overwrite)


class Pipeline:
    """A Stable Diffusion model on ONNX Runtime. Open one with `Pipeline.open`, then call it.

    Attributes:
        bundle: the ONNX bundle in use.
        family: the model's family.
        facts: what the bundle says of the model.
    """

    def __init__(self, bundle: Bundle, engine: Engine) -> None:
        self.bundle = bundle
        self.facts = bundle.facts
        self.family = find_family(self.facts)
        self._engine = engine
        self._scheduler = SchedulerConfig.from_json(bundle.scheduler)
        self._tokenizers = {
            encoder.tokenizer: ClipTokenizer.from_directory(bundle.tokenizers[encoder.tokenizer])
            for encoder in self.family.encoders
        }

    @classmethod
    def open(
        cls,
        source: str | Path,
        *,
        provider: str = "auto",
        dtype: str | None = None,
        on_event: OnEvent | None = None,
    ) -> Pipeline:
        """Open a model.

        Args:
            source: an embedded model's name ("shapes"), an ONNX bundle's folder, or a checkpoint
                in the diffusers layout. A checkpoint is converted once, into the user's cache,
                under a key made of its contents.
            provider: execution provider, or "auto" for the best one installed.
            dtype: precision of the graphs, "fp32" or "fp16"; None takes that of the bundle, and
                float32 for a checkpoint.
            on_event: told of the progress of a conversion.

        Raises:
            BadRequest: there is no such model.
            BadCheckpoint, BadBundle: the model's files are damaged or not supported.
            NoProvider: ONNX Runtime is not installed or lacks the provider.
        """
        # First, so that a missing wheel is told before the minutes of a conversion.
        chosen = choose_provider(provider, available_providers())
        bundle = open_source(source, dtype=dtype, on_event=on_event or ignore_event)
        return cls(bundle, Engine(bundle.graph_paths, chosen))

    def __call__(
        self,
        prompt: str,
        negative_prompt: str | None = None,
        num_inference_steps: int | None = None,
        guidance_scale: float | None = None,
        sampler: str | None = None,
        timestep_spacing: str | None = None,
        seed: int | None = None,
        width: int | None = None,
        height: int | None = None,
        num_images_per_prompt: int = 1,
        latents: NDArray[np.float32] | None = None,
        on_event: OnEvent | None = None,
    ) -> Result:
        """Draw a prompt. The arguments are the fields of `Request`; None lets the plan decide.

        Args:
            on_event: told of each stage and step; raising `Cancelled` in it stops the run.

        Raises:
            BadRequest: a value cannot be carried out, or would have no effect.
            BadBundle: a graph does not fit its model or failed.
            Cancelled: `on_event` raised it.
        """
        request = Request(
            prompt=prompt,
            negative_prompt=negative_prompt,
            num_inference_steps=num_inference_steps,
            guidance_scale=guidance_scale,
            sampler=sampler,
            timestep_spacing=timestep_spacing,
            seed=seed,
            width=width,
            height=height,
            num_images_per_prompt=num_images_per_prompt,
            latents=latents,
        )
        return self.run(request, on_event=on_event)

    def plan(self, request: Request) -> Plan:
        """What `run` would do with `request`, every number decided.

        Raises:
            BadRequest: a value cannot be carried out, or would have no effect.
        """
        return resolve(request, self.family, self.facts, self._scheduler)

    def run(self, request: Request, *, on_event: OnEvent | None = None) -> Result:
        """Draw a request; see `__call__`."""
        tell = on_event or ignore_event
        plan = self.plan(request)
        clock = _Clock(tell)
        self._load(plan, clock)
        with clock.stage("encode", 1):
            conditioning = encode(plan, self._tokenizers, self._engine)
        total = len(plan.schedule.rows)
        with clock.stage("denoise", total):

            def on_step(index: int, row: StepRow, x0: NDArray[np.float32]) -> None:
                tell(StepDone(index + 1, total, row.timestep, x0))

            latents = denoise(plan, conditioning, self._engine, on_step=on_step)
        with clock.stage("decode", len(latents)):

            def on_picture(done: int) -> None:
                tell(StageAdvanced("decode", done, len(latents)))

            pictures = decode(plan, latents, self._engine, on_picture=on_picture)
        notes = (
            *(Note("model", text, is_warning=True) for text in self.bundle.notes),
            *conditioning.notes,
        )
        record = make_record(plan, self._provenance(), clock.seconds, notes)
        return Result([Image.fromarray(picture) for picture in pictures], latents, record)

    def _load(self, plan: Plan, clock: _Clock) -> None:
        roles = [*(encoder.component for encoder in plan.family.encoders), "unet", "vae_decoder"]
        with clock.stage("load", len(roles)):
            for done, role in enumerate(roles, start=1):
                self._engine.graph(role)
                clock.tell(StageAdvanced("load", done, len(roles), role))

    def _provenance(self) -> Provenance:
        return Provenance(
            model=self.bundle.name,
            model_hash=self.bundle.content_hash,
            dtype=self.bundle.dtype,
            provider=self._engine.provider.name,
            versions=versions(runtime_version()),
        )


class _Clock:
    """Tells `on_event` of stages and adds up their seconds."""

    def __init__(self, on_event: OnEvent) -> None:
        self.tell = on_event
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: Stage, total: int) -> Generator[None]:
        self.tell(StageStarted(name, total))
        start = perf_counter()
        yield
        self.seconds[name] = perf_counter() - start
        self.tell(StageDone(name, self.seconds[name]))
