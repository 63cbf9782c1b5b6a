"""docs/benchmarks.md, made from the figures that the benchmarks wrote.

python benchmarks/render.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results"
SHAPES = ROOT / "training" / "shapes" / "results.json"

Json = Any  # figures are read to be printed; what is missing stops the rendering

HEAD = """\
# Benchmarks

Made by `python benchmarks/render.py` from the figures that the commands below wrote; a test holds
the page to them. Nothing here was measured on a GPU.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, _default_command(), _unet_parity(), _shapes(), _held_by_tests()])


def _read(path: Path) -> Json:
    return json.loads(path.read_text(encoding="utf-8"))


def _default_command() -> str:
    figures = _read(RESULTS / "default_command.json")
    rows = [
        "| what | median wall | all wall | median processor |",
        "|---|---:|---|---:|",
    ]
    for title, key in (
        ("first picture, conversion included", "first_picture"),
        ("later pictures", "later_pictures"),
        ("`python -c 'import ortist'`", "import_ortist"),
        ("`python -c pass`, for comparison", "python_alone"),
    ):
        runs = figures[key]
        walls = ", ".join(f"{value:.2f}" for value in runs["wall"])
        wall, processor = runs["wall_median"], runs["processor_median"]
        rows.append(f"| {title} | {wall:.2f} s | {walls} | {processor:.2f} s |")
    has_torch = "with" if figures["has_torch"] else "without"
    loads = " and ".join(str(value) for value in figures["load_average_before_and_after"])
    return f"""\
## The default command

    python benchmarks/default_command.py --out benchmarks/results/default_command.json

A fresh virtual environment after `pip install ".[cpu]"`: {figures["installed_megabytes"]:.0f} MB,
{has_torch} PyTorch. Then `{figures["command"]}`, each run a new process, cold and
warm runs in turn:

{chr(10).join(rows)}

{figures["cores"]} cores, Python {figures["python"]}, ONNX Runtime \
{figures["packages"]["onnxruntime"]}; load average {loads}.
"""


def _unet_parity() -> str:
    figures = _read(RESULTS / "unet_parity.json")
    versions = figures["versions"]
    shape = "x".join(str(side) for side in figures["latents"])
    return f"""\
## A full-size graph against diffusers

    python benchmarks/unet_parity.py --size {figures["latents"][-1]} \
--out benchmarks/results/unet_parity.json

Relative error: the largest difference over the largest magnitude of the reference, both float32
with the same random weights. 1e-5 is what we allow.

| graph | relative error | nodes |
|---|---:|---:|
| {figures["model"]}, latents {shape}, timestep {figures["timestep"]:g} \
| {figures["relative_error"]:.1e} | {figures["nodes"]:,} |

diffusers {versions["diffusers"]}, torch {versions["torch"]}, ONNX Runtime \
{versions["onnxruntime"]}, CPU provider. An exporter's graph of the same network has 4,496 nodes.
"""


def _shapes() -> str:
    figures = _read(SHAPES)
    kinds = (("one object", "single"), ("two objects", "double"))
    rows = ["| | attribute | right | of | 95 % interval |", "|---|---|---:|---:|---|"]
    for title, key in kinds:
        for name, rate in figures[key]["rates"].items():
            rows.append(
                f"| {title} | {name} | {rate['right']} | {rate['n']} "
                f"| {100 * rate['low']:.1f} to {100 * rate['high']:.1f} % |"
            )
    settings = figures["settings"]
    return f"""\
## The embedded model `shapes`

    python training/shapes/report.py

Held-out prompts, {settings["num_inference_steps"]} steps of {settings["sampler"]}, guidance \
{settings["guidance_scale"]:g}, judged by a checker that shares no code with the drawing code
([training/shapes](../training/shapes/README.md)):

{chr(10).join(rows)}
"""


def _held_by_tests() -> str:
    return """\
## Held by tests

Figures that `pytest -m parity` asserts on every run, against diffusers and transformers:

| what | limit |
|---|---|
| each graph on small random configurations, float32, several sizes, batches and time steps: \
16 UNets, 5 CLIP text encoders, 5 autoencoders, 3 tiny autoencoders | relative error 1e-5 |
| whole runs, 8 steps, each sampler with each spacing, guidance 7.5 and 1 (epsilon), and \
each at guidance 7.5 (v): final latents | relative error 1e-3 |
| the same: pictures | 2 of 255 |
| `torch.randn` on the CPU (x86-64, AVX2 or AVX-512), any shape and sequence | equal bit for bit |
| bundles in optimum-onnx, unmodified: pictures | 2 of 255 |
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
