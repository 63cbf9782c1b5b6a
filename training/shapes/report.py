"""Measure a `shapes` model through ortist itself, on prompts that training never saw.

    python training/shapes/report.py              # the packaged model, the published files
    python training/shapes/report.py --model DIR --singles 60 --pairs 40 --sheet trial.png

Unlike evaluate.py, which serves training and needs torch, this is the path a user takes: the model
is converted, and ONNX Runtime draws. Prints the checker's table, and writes the figures as JSON and
a contact sheet of the first prompts of the list. The sheet's pictures are not selected: wrong ones
are on it, and say so.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import checker
import draw
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from ortist import Result

ROOT = Path(__file__).resolve().parents[2]
PROMPT_SEED = 7
FIRST_SEED = 1000  # picture i is drawn with this plus i

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Made:
    """A picture, how it came about and how long it took."""

    prompt: str
    seed: int
    picture: Bytes
    seconds: float
    record: dict[str, Any]


def held_out_prompts(singles: int, pairs: int) -> list[str]:
    """A fixed list of different prompts that training never saw: one object, then two.

    A shorter list is the beginning of a longer one, for each kind.
    """
    prompts: list[str] = []
    for count, share in ((singles, 0.0), (pairs, 1.0)):
        rng = np.random.default_rng((PROMPT_SEED, int(share)))
        found: dict[str, None] = {}
        while len(found) < count:
            scenes = draw.sample(rng, 1000, share)
            scenes = scenes.take(draw.held_out(scenes))
            found.update(dict.fromkeys(draw.caption(scenes, i) for i in range(len(scenes))))
        prompts.extend(list(found)[:count])
    return prompts


def make(
    pipe: Callable[..., Result], prompts: Sequence[str], settings: dict[str, Any]
) -> list[Made]:
    """Draw every prompt once, with a seed of its own, and tell of the progress."""
    made: list[Made] = []
    begin = time.monotonic()
    for i, prompt in enumerate(prompts):
        seed, start = FIRST_SEED + i, time.perf_counter()
        result = pipe(prompt, seed=seed, **settings)
        seconds = time.perf_counter() - start
        picture = np.asarray(result.images[0].convert("RGB"))
        made.append(Made(prompt, seed, picture, seconds, json.loads(result.record.to_json())))
        if (i + 1) % 50 == 0 or i + 1 == len(prompts):
            print(f"{i + 1}/{len(prompts)} in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return made


def as_json(made: Sequence[Made], table: checker.Table) -> dict[str, Any]:
    """The figures, what they were measured on, and every failure with the seed that shows it."""
    first = made[0].record
    same = ("num_inference_steps", "guidance_scale", "sampler", "levels", "timestep_spacing")
    failures = [
        {
            "prompt": item.prompt,
            "seed": item.seed,
            "wrong": [name for name, right in score.attributes.items() if not right],
        }
        for item, score in zip(made, table.scores, strict=True)
        if not score.all
    ]
    # The first picture also loads the graphs.
    seconds = [item.seconds for item in made[1:]] or [made[0].seconds]
    return {
        "provenance": first.get("provenance"),
        "settings": {name: first.get(name) for name in same},
        "seconds_per_picture": round(float(np.median(seconds)), 3),
        **table.as_json(),
        "failures": failures,
        "prompts": [item.prompt for item in made],
        "first_seed": FIRST_SEED,
    }


# ------------------------------------------------------------------------------------------ sheet

_TILE, _GAP, _MARGIN = 192, 22, 28
_LINE = 18
_INK, _FRAME, _WRONG = (60, 64, 70), (214, 217, 221), (200, 30, 30)


def _wrap(text: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Words in lines no wider than `width`."""
    words = text.split()
    lines = [words[0]]
    for word in words[1:]:
        if font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def sheet(made: Sequence[Made], scores: Sequence[checker.Score], columns: int) -> Image.Image:
    """A grid of pictures, each over its prompt; a wrong one names what is wrong with it."""
    rows = -(-len(made) // columns)
    lines = 3 if all(score.all for score in scores) else 4
    step_x, step_y = _TILE + _GAP, _TILE + lines * _LINE + _GAP
    size = (columns * step_x - _GAP + 2 * _MARGIN, rows * step_y - _GAP + 2 * _MARGIN)
    page = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(14)
    for i, (item, score) in enumerate(zip(made, scores, strict=True)):
        x, y = _MARGIN + i % columns * step_x, _MARGIN + i // columns * step_y
        tile = Image.fromarray(item.picture).resize((_TILE, _TILE), Image.Resampling.LANCZOS)
        page.paste(tile, (x, y))
        pen.rectangle((x - 1, y - 1, x + _TILE, y + _TILE), outline=_FRAME)
        y += _TILE + 6
        for line in _wrap(item.prompt, font, _TILE):
            pen.text((x, y), line, font=font, fill=_INK)
            y += _LINE
        if not score.all:
            wrong = [name for name, right in score.attributes.items() if not right]
            pen.text((x, y), "wrong: " + ", ".join(wrong), font=font, fill=_WRONG)
    return page


def front(made: Sequence[Made], table: checker.Table, singles: int, pairs: int) -> Image.Image:
    """The sheet of the first `singles` and `pairs` prompts."""
    kinds: tuple[list[int], list[int]] = ([], [])
    for i, score in enumerate(table.scores):
        kinds[len(score.asked.objects) - 1].append(i)
    shown = kinds[0][:singles] + kinds[1][:pairs]
    return sheet([made[i] for i in shown], [table.scores[i] for i in shown], columns=6)


def _write(path: Path, data: bytes | Image.Image) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        data.save(path, optimize=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, draw, print the table, write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="shapes", help="what Pipeline.open takes")
    parser.add_argument("--singles", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float)
    parser.add_argument("--sampler")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--sheet", type=Path, help="write the contact sheet here")
    parser.add_argument("--wrong", type=Path, help="write a sheet of up to 60 wrong pictures here")
    options = parser.parse_args(arguments)
    if options.singles + options.pairs < 1:
        parser.error("no prompts asked for")

    from ortist import Pipeline

    settings: dict[str, Any] = {"num_inference_steps": options.steps}
    if options.guidance is not None:
        settings["guidance_scale"] = options.guidance
    if options.sampler is not None:
        settings["sampler"] = options.sampler
    # The published files come from the published command only: a trial must not replace them.
    published = len(sys.argv if arguments is None else ["", *arguments]) == 1
    figures, front_page = options.json, options.sheet
    if published:
        figures = ROOT / "training" / "shapes" / "results.json"
        front_page = ROOT / "docs" / "images" / "shapes.png"

    prompts = held_out_prompts(options.singles, options.pairs)
    made = make(Pipeline.open(options.model), prompts, settings)
    table = checker.evaluate((item.picture for item in made), prompts)
    print(table)
    data = as_json(made, table)
    print(f"median {data['seconds_per_picture']} s a picture")
    if figures:
        _write(figures, (json.dumps(data, indent=1) + "\n").encode())
    if front_page:
        _write(front_page, front(made, table, singles=15, pairs=9))
    bad = [i for i, score in enumerate(table.scores) if not score.all][:60]
    if options.wrong and bad:
        _write(
            options.wrong, sheet([made[i] for i in bad], [table.scores[i] for i in bad], columns=6)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
