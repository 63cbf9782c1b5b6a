"""The checker of `shapes` against drawings made here with Pillow: right ones and wrong ones."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

SOURCE = Path(__file__).parents[2] / "training" / "shapes" / "checker.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shapes_checker", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


checker = _load()

OVER = 4
COLORS: dict[str, tuple[int, int, int]] = dict(checker.PALETTE)
SHAPES: tuple[str, ...] = checker.SHAPES
DIAMETER = {"small": 0.30, "medium": 0.50, "large": 0.75}
SPOTS = {
    "center": (0.5, 0.5), "top": (0.5, 0.28), "bottom": (0.5, 0.72), "left": (0.28, 0.5),
    "right": (0.72, 0.5), "top left": (0.28, 0.28), "top right": (0.72, 0.28),
    "bottom left": (0.28, 0.72), "bottom right": (0.72, 0.72),
}  # fmt: skip
PHRASES = {name: f"in the {name} corner" if " " in name else f"at the {name}" for name in SPOTS}
PHRASES["center"] = "in the center"


def outline(shape: str, around: bool) -> list[tuple[float, float]]:
    """Corners for a diameter of 2 about (0, 0), y down.

    `around`: the diameter is that of the circle around the shape, otherwise its width.
    """
    c = math.cos(math.pi / 4) if around else 1.0
    turn = -math.pi / 2
    if shape == "square":
        return [(-c, -c), (c, -c), (c, c), (-c, c)]
    if shape == "diamond":
        return [(0, -1), (1, 0), (0, 1), (-1, 0)]
    if shape == "triangle":
        if around:
            return [
                (math.cos(turn + k * 2 * math.pi / 3), math.sin(turn + k * 2 * math.pi / 3))
                for k in range(3)
            ]
        h = math.sqrt(3) / 2
        return [(0, -h), (1, h), (-1, h)]
    if shape == "star":
        grow = 1.0 if around else 1 / math.cos(math.radians(18))
        radii = [grow, grow * (0.382 if around else 0.42)]
        return [
            (
                radii[k % 2] * math.cos(turn + k * math.pi / 5),
                radii[k % 2] * math.sin(turn + k * math.pi / 5),
            )
            for k in range(10)
        ]
    if shape == "cross":
        t = 1 / 3
        return [
            (-t, -1), (t, -1), (t, -t), (1, -t), (1, t), (t, t),
            (t, 1), (-t, 1), (-t, t), (-1, t), (-1, -t), (-t, -t),
        ]  # fmt: skip
    assert shape == "heart"
    points: list[tuple[float, float]] = []
    for k in range(120):
        a = 2 * math.pi * k / 120
        x = 16 * math.sin(a) ** 3
        y = 13 * math.cos(a) - 5 * math.cos(2 * a) - 2 * math.cos(3 * a) - math.cos(4 * a)
        points.append((x / 16, -(y + 2.5) / 16) if around else (x / 16, -(y + 2.5) / 14.5))
    return points


class Canvas:
    def __init__(self, background: str) -> None:
        side = 128 * OVER
        self.image = Image.new("RGB", (side, side), COLORS[background])
        self.background = background
        self.pen = ImageDraw.Draw(self.image)

    def shape(
        self, color: str, shape: str, at: tuple[float, float], diameter: float, around: bool = True
    ) -> Canvas:
        x, y = (value * 128 * OVER for value in at)
        r = diameter * 64 * OVER
        fill = COLORS[color]
        if shape in ("circle", "ring"):
            self.pen.ellipse((x - r, y - r, x + r, y + r), fill=fill)
            if shape == "ring":
                q = 0.55 * r
                self.pen.ellipse((x - q, y - q, x + q, y + q), fill=COLORS[self.background])
        else:
            points = [(x + px * r, y + py * r) for px, py in outline(shape, around)]
            self.pen.polygon(points, fill=fill)
        return self

    def pixels(self, noise: float = 0.0, blur: float = 0.0, seed: int = 0) -> Any:
        image = self.image.resize((128, 128), Image.Resampling.BOX)
        if blur:
            image = image.filter(ImageFilter.GaussianBlur(blur))
        values = np.asarray(image).astype(np.float64)
        if noise:
            values += np.random.default_rng(seed).normal(0, noise, values.shape)
        return np.rint(values).clip(0, 255).astype(np.uint8)


PAIRS = list(itertools.permutations(COLORS, 2))


def singles(count: int, seed: int) -> Any:
    """Drawings that are right, with their prompts: every shape, size and position in turn."""
    rng = np.random.default_rng(seed)
    wanted = [
        (shape, size, spot)
        for shape in SHAPES
        for size in DIAMETER
        for spot in (SPOTS if size != "large" else ["center"])
    ]
    for index in range(count):
        shape, size, spot = wanted[index % len(wanted)]
        color, background = PAIRS[int(rng.integers(len(PAIRS)))]
        words = f"{size} " if size != "medium" else ""
        prompt = f"a {words}{color} {shape} {PHRASES[spot]} on a {background} background"
        x, y = (value + rng.uniform(-0.015, 0.015) for value in SPOTS[spot])
        diameter = DIAMETER[size] * rng.uniform(0.97, 1.03)
        around = bool(rng.integers(2))
        yield Canvas(background).shape(color, shape, (x, y), diameter, around), prompt


def doubles(count: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    places = {
        "left of": ((0.28, 0.5), (0.72, 0.5)), "right of": ((0.72, 0.5), (0.28, 0.5)),
        "above": ((0.5, 0.28), (0.5, 0.72)), "below": ((0.5, 0.72), (0.5, 0.28)),
    }  # fmt: skip
    wanted = list(itertools.product(SHAPES, SHAPES, places))
    order = rng.permutation(len(wanted))
    for index in range(count):
        one, two, relation = wanted[order[index % len(wanted)]]
        color, background = PAIRS[int(rng.integers(len(PAIRS)))]
        other = str(rng.choice([name for name in COLORS if name != background]))
        canvas = Canvas(background)
        around = bool(rng.integers(2))
        for tint, shape, spot in zip((color, other), (one, two), places[relation], strict=True):
            x, y = (value + rng.uniform(-0.01, 0.01) for value in spot)
            canvas.shape(tint, shape, (x, y), 0.38, around)
        yield canvas, f"a {color} {one} {relation} a {other} {two} on a {background} background"


DAMAGE = [(0.0, 0.0), (3.0, 0.0), (6.0, 0.0), (0.0, 0.8), (6.0, 0.8)]


@pytest.mark.parametrize(("noise", "blur"), DAMAGE)
def test_right_singles_pass(noise: float, blur: float) -> None:
    cases = list(singles(152, seed=int(noise * 10 + blur * 100)))
    pictures = [canvas.pixels(noise, blur, seed) for seed, (canvas, _) in enumerate(cases)]
    table = checker.evaluate(pictures, [prompt for _, prompt in cases])
    assert table.double is None
    assert table.single.rates["all"].rate >= 0.995, str(table)


@pytest.mark.parametrize(("noise", "blur"), DAMAGE)
def test_right_doubles_pass(noise: float, blur: float) -> None:
    cases = list(doubles(128, seed=int(noise * 10 + blur * 100)))
    pictures = [canvas.pixels(noise, blur, seed) for seed, (canvas, _) in enumerate(cases)]
    table = checker.evaluate(pictures, [prompt for _, prompt in cases])
    assert table.single is None
    assert table.double.rates["all"].rate >= 0.995, str(table)


def test_every_pair_of_colors_is_told_apart() -> None:
    for seed, (color, background) in enumerate(PAIRS):
        picture = Canvas(background).shape(color, "heart", (0.5, 0.5), 0.5).pixels(5, 0.5, seed)
        score = checker.check(picture, f"a {color} heart on a {background} background")
        assert score.all, (color, background, score)


@pytest.mark.parametrize("amount", [-10, 10])
def test_jittered_palette_keeps_its_names(amount: int) -> None:
    for color, rgb in COLORS.items():
        background = "black" if color != "black" else "white"
        canvas = Canvas(background).shape(color, "circle", (0.5, 0.5), 0.5)
        picture = canvas.pixels().astype(int)
        inside = np.abs(picture - np.array(rgb)).sum(axis=2) < 3
        for channel in itertools.product((0, 1), repeat=3):
            moved = picture + inside[..., None] * amount * np.array(channel)
            seen = checker.look(moved.clip(0, 255).astype(np.uint8))
            assert [item.color for item in seen.objects] == [color], (color, channel)


# -------------------------------------------------------------------------------- wrong pictures


def wrong(picture: Any, prompt: str) -> set[str]:
    score = checker.check(picture, prompt)
    assert not score.all
    return {name for name, right in score.attributes.items() if not right}


PROMPT = "a red circle on a white background"


def drawn(shape: str = "circle", diameter: float = 0.5) -> Canvas:
    return Canvas("white").shape("red", shape, (0.5, 0.5), diameter)


def test_flat_picture_has_nothing_but_a_background() -> None:
    assert wrong(Canvas("white").pixels(), PROMPT) == {"color", "shape", "size", "position"}


def test_noise_has_nothing_right() -> None:
    for seed in range(20):
        picture = np.random.default_rng(seed).integers(0, 256, (128, 128, 3), dtype=np.uint8)
        assert {"background", "shape"} <= wrong(picture, PROMPT)


def test_blobs_are_no_shape() -> None:
    rng = np.random.default_rng(5)
    names: list[str] = []
    for _ in range(60):
        canvas = Canvas("white")
        for _ in range(5):
            x, y = rng.uniform(0.36, 0.64, 2) * 128 * OVER
            rx, ry = rng.uniform(0.06, 0.2, 2) * 128 * OVER
            canvas.pen.ellipse((x - rx, y - ry, x + rx, y + ry), fill=COLORS["red"])
        names.extend(str(item.shape) for item in checker.look(canvas.pixels()).objects)
    assert sum(name != "None" for name in names) <= 3, names


def half(shape: str, fraction: float = 0.5) -> Any:
    canvas = drawn(shape)
    cut = (0.25 + 0.5 * fraction) * 128 * OVER
    canvas.pen.rectangle((0, cut, 128 * OVER, 128 * OVER), fill=COLORS["white"])
    return canvas.pixels()


@pytest.mark.parametrize("shape", ["circle", "square", "star", "heart", "cross", "ring"])
def test_half_a_shape_is_not_that_shape(shape: str) -> None:
    assert "shape" in wrong(half(shape), f"a red {shape} on a white background")


@pytest.mark.parametrize("squeeze", [0.7, 1.4])
@pytest.mark.parametrize("shape", SHAPES)
def test_squeezed_shapes_fail(shape: str, squeeze: float) -> None:
    image = Image.fromarray(drawn(shape).pixels())
    tall = round(128 * squeeze)
    image = image.resize((128, tall), Image.Resampling.BICUBIC)
    canvas = Image.new("RGB", (128, 128), (255, 255, 255))
    canvas.paste(image, (0, (128 - tall) // 2))
    assert "shape" in wrong(np.asarray(canvas), f"a red {shape} on a white background")


@pytest.mark.parametrize("degrees", [45, 180])
@pytest.mark.parametrize("shape", ["square", "triangle", "star", "heart", "diamond", "cross"])
def test_turned_shapes_fail(shape: str, degrees: int) -> None:
    if degrees == 180 and shape in ("square", "diamond", "cross"):
        return
    image = Image.fromarray(drawn(shape).pixels())
    turned = image.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=(255, 255, 255))
    assert "shape" in wrong(np.asarray(turned), f"a red {shape} on a white background")


@pytest.mark.parametrize("diameter", [0.30, 0.38, 0.5, 0.75])
@pytest.mark.parametrize(("asked", "given"), list(itertools.permutations(SHAPES, 2)))
def test_another_shape_fails(asked: str, given: str, diameter: float) -> None:
    picture = drawn(given, diameter).pixels(3, 0.7)
    assert "shape" in wrong(picture, f"a red {asked} on a white background")


def test_wrong_colors_fail() -> None:
    assert wrong(drawn().pixels(), "a orange circle on a white background") == {"color"}
    assert wrong(drawn().pixels(), "a red circle on a yellow background") == {"background"}


def test_a_shape_of_two_colors_has_no_color() -> None:
    canvas = drawn("square")
    x, y = 64 * OVER, 64 * OVER
    canvas.pen.rectangle((x, 0, 128 * OVER, y), fill=COLORS["white"])
    canvas.pen.rectangle((x, y - 20 * OVER, x + 20 * OVER, y), fill=COLORS["orange"])
    assert "shape" in wrong(canvas.pixels(), "a red square on a white background")


@pytest.mark.parametrize("extra", [("blue", 0.3), ("red", 0.3), ("gray", 0.07), ("red", 0.06)])
def test_a_second_object_fails_shape(extra: tuple[str, float]) -> None:
    color, diameter = extra
    canvas = drawn("circle", 0.3).shape(color, "square", (0.84, 0.84), diameter)
    found = wrong(canvas.pixels(3, 0.5), "a small red circle on a white background")
    assert "shape" in found


def test_a_second_object_that_touches_fails_shape() -> None:
    canvas = drawn("circle", 0.5).shape("red", "circle", (0.76, 0.76), 0.15)
    assert "shape" in wrong(canvas.pixels(), PROMPT)


def test_a_stray_line_fails_shape() -> None:
    canvas = drawn("circle", 0.3)
    canvas.pen.line((40, 40, 40, 400), fill=COLORS["red"], width=2 * OVER)
    assert "shape" in wrong(canvas.pixels(), "a small red circle on a white background")


@pytest.mark.parametrize(("size", "fails"), [(7, False), (16, True)])
def test_only_a_large_faint_stain_fails(size: int, fails: bool) -> None:
    picture = drawn("circle", 0.3).pixels(2)
    picture[8 : 8 + size, 90 : 90 + size] = (255, 228, 228)
    score = checker.check(picture, "a small red circle on a white background")
    assert score["shape"] is not fails and score["background"]


def test_holes() -> None:
    canvas = drawn()
    r, middle = 5 * OVER, 64 * OVER
    canvas.pen.ellipse((middle - r, middle - r, middle + r, middle + r), fill=COLORS["white"])
    assert wrong(canvas.pixels(), PROMPT) == {"shape"}
    ring = drawn("ring")
    ring.pen.rectangle((middle - r, 0, middle + r, middle), fill=COLORS["white"])
    assert wrong(ring.pixels(), "a red ring on a white background") == {"shape"}


def test_a_fading_blob_is_no_circle() -> None:
    picture = drawn("circle", 0.4).pixels(0, 9)
    assert "shape" in wrong(picture, "a red circle on a white background")


def test_a_divided_background_fails() -> None:
    canvas = Canvas("white")
    canvas.pen.rectangle((0, 0, 128 * OVER, 40 * OVER), fill=COLORS["cyan"])
    canvas.shape("red", "circle", (0.5, 0.5), 0.3)
    assert "shape" in wrong(canvas.pixels(), "a small red circle on a white background")


def test_wrong_size_and_position_fail_alone() -> None:
    assert wrong(drawn("star", 0.3).pixels(), "a red star on a white background") == {"size"}
    assert wrong(drawn("star", 0.5).pixels(), "a large red star on a white background") == {"size"}
    corner = "a red star in the top left corner on a white background"
    assert wrong(drawn("star").pixels(), corner) == {"position"}


def pair(one: tuple[float, float], two: tuple[float, float]) -> Canvas:
    canvas = Canvas("white").shape("red", "circle", one, 0.38)
    return canvas.shape("blue", "square", two, 0.38)


def test_wrong_doubles_fail() -> None:
    prompt = "a red circle left of a blue square on a white background"
    left, right, high, low = (0.28, 0.5), (0.72, 0.5), (0.5, 0.28), (0.5, 0.72)
    assert checker.check(pair(left, right).pixels(), prompt).all
    assert wrong(pair(right, left).pixels(), prompt) == {"relation"}
    assert wrong(pair(high, low).pixels(), prompt) == {"relation"}
    third = pair((0.28, 0.3), (0.72, 0.3)).shape("red", "circle", (0.5, 0.8), 0.2)
    assert wrong(third.pixels(), prompt) == {"shape"}
    swapped = "a blue circle left of a red square on a white background"
    assert wrong(pair(left, right).pixels(), swapped) == {"color"} or "relation" in wrong(
        pair(left, right).pixels(), swapped
    )
    alone = Canvas("white").shape("red", "circle", left, 0.38).pixels()
    assert wrong(alone, prompt) == {"color", "shape", "relation"}


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("other", ["red", "blue"])
def test_neighbours_that_nearly_touch_are_two(other: str, gap: float) -> None:
    canvas = Canvas("white").shape("red", "circle", (0.3, 0.5), 0.38)
    canvas.shape(other, "circle", (0.3 + 0.38 + gap / 128, 0.5), 0.38)
    prompt = f"a red circle left of a {other} circle on a white background"
    assert checker.check(canvas.pixels(3, 0.6), prompt).all


# ---------------------------------------------------------------------------------- the interface


def test_parse_prompt() -> None:
    asked = checker.parse_prompt("a red ring on a white background")
    assert asked.background == "white" and asked.relation is None
    assert asked.objects == (checker.AskedObject("red", "ring", "medium", "center"),)
    corner = checker.parse_prompt(
        "a small cyan star in the bottom right corner on a gray background"
    )
    assert corner.objects[0].size == "small" and corner.objects[0].position == "bottom right"
    top = checker.parse_prompt("a large cyan star at the top on a gray background")
    assert top.objects[0].position == "top"
    two = checker.parse_prompt("a red ring right of a blue cross on a black background")
    assert two.relation == "right of" and two.objects[1].shape == "cross"


@pytest.mark.parametrize(
    "prompt",
    [
        "", "a red dog on a white background", "a red circle", "a red circle on a red background",
        "a huge red circle on a white background",
        "a small red ring left of a blue ring on a black background",
    ],
)  # fmt: skip
def test_parse_prompt_refuses(prompt: str) -> None:
    with pytest.raises(ValueError, match=r"grammar|same colour"):
        checker.parse_prompt(prompt)


def test_look_refuses_other_sizes() -> None:
    with pytest.raises(ValueError, match="expected"):
        checker.look(np.zeros((64, 64, 3), dtype=np.uint8))


def test_wilson_interval() -> None:
    rate = checker.Rate.of(285, 300)  # compared with a published calculator's values
    assert rate.rate == pytest.approx(0.95)
    assert (rate.low, rate.high) == pytest.approx((0.9191, 0.9695), abs=2e-4)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    Image.fromarray(drawn().pixels()).save(folder / "0.png")
    Image.fromarray(pair((0.28, 0.5), (0.72, 0.5)).pixels()).save(folder / "1.png")
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(f"{PROMPT}\na red circle above a blue square on a white background\n")
    assert checker.main([str(folder), "--prompts", str(prompts), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["single"]["rates"]["all"]["right"] == 1
    assert report["failures"][0]["wrong"] == ["relation"]
    assert checker.main([str(folder), "--prompts", str(prompts)]) == 0
    assert "two objects: relation" in capsys.readouterr().out
