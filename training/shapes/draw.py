"""Scenes of one or two flat shapes: sampling, captions and anti-aliased drawing in batches.

A scene is stored as plain integer and float arrays (`Scenes`), so that a batch of thousands is
drawn by a few numpy operations. Coordinates are pixels with the origin at the top left corner and
y growing downwards. The *diameter* of a shape is the longer side of its bounding box, except that
a square is as large as the disc of that diameter (a square that fills the box looks a size larger
than its neighbours). A shape is placed by the centre of its bounding box.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

SIDE = 128

PALETTE: dict[str, tuple[int, int, int]] = {
    "red": (220, 38, 38),
    "orange": (249, 115, 22),
    "yellow": (250, 204, 21),
    "green": (22, 163, 74),
    "cyan": (34, 211, 238),
    "blue": (37, 99, 235),
    "purple": (147, 51, 234),
    "pink": (244, 114, 182),
    "white": (255, 255, 255),
    "black": (17, 17, 17),
    "gray": (128, 128, 128),
    "brown": (133, 77, 14),
}
COLORS = tuple(PALETTE)
SHAPES = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring")
SIZES = ("small", "default", "large")
DIAMETERS = (0.30, 0.50, 0.75)
PAIR_DIAMETER = 0.38
RELATIONS = ("left of", "right of", "above", "below")
POSITIONS = (
    "in the center",
    "at the top",
    "at the bottom",
    "at the left",
    "at the right",
    "in the top left corner",
    "in the top right corner",
    "in the bottom left corner",
    "in the bottom right corner",
)
_NEAR, _MIDDLE, _FAR = 0.28, 0.50, 0.72
CENTERS = (
    (_MIDDLE, _MIDDLE),
    (_MIDDLE, _NEAR),
    (_MIDDLE, _FAR),
    (_NEAR, _MIDDLE),
    (_FAR, _MIDDLE),
    (_NEAR, _NEAR),
    (_FAR, _NEAR),
    (_NEAR, _FAR),
    (_FAR, _FAR),
)
# The cells of the first and of the second object, one row a relation, as indices into POSITIONS.
PAIR_CELLS = ((3, 4), (4, 3), (1, 2), (2, 1))

CENTER_JITTER = 1.5  # pixels, uniform, each axis
DIAMETER_JITTER = 0.03  # relative, uniform
COLOR_JITTER = 4  # of 255, uniform, each channel

Array = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass
class Scenes:
    """A batch of n scenes as arrays; the second object of a single-object scene is ignored.

    `relation` is -1 for single-object scenes; `size` and `cell[:, 0]` describe their only object.
    """

    background: Ints  # (n,) index into COLORS
    color: Ints  # (n, 2) index into COLORS
    shape: Ints  # (n, 2) index into SHAPES
    size: Ints  # (n,) index into SIZES
    cell: Ints  # (n, 2) index into POSITIONS
    relation: Ints  # (n,) index into RELATIONS, or -1

    def __len__(self) -> int:
        return len(self.background)

    def take(self, index: NDArray[np.integer] | NDArray[np.bool_] | slice) -> Scenes:
        """The scenes that a numpy index or mask selects."""
        return Scenes(*(getattr(self, f.name)[index] for f in fields(self)))


def join(parts: list[Scenes]) -> Scenes:
    """Concatenate batches of scenes."""
    return Scenes(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Scenes)))


def sample(rng: np.random.Generator, n: int, pairs: float) -> Scenes:
    """Draw n random scenes, each with two objects with probability `pairs`.

    Small objects and objects off the centre are as likely as the grammar makes them; "large" is
    drawn for one single-object scene in six, and always in the centre.
    """
    background = rng.integers(12, size=n)
    color = (background[:, None] + rng.integers(1, 12, size=(n, 2))) % 12
    shape = rng.integers(8, size=(n, 2))
    size = rng.choice(3, size=n, p=(3 / 6, 2 / 6, 1 / 6))
    cell = np.repeat(rng.integers(9, size=(n, 1)), 2, axis=1)
    cell[size == 2] = 0
    relation = np.where(rng.random(n) < pairs, rng.integers(4, size=n), -1)
    two = relation >= 0
    cell[two] = np.array(PAIR_CELLS)[relation[two]]
    size[two] = 1
    return Scenes(background, color, shape, size, cell, relation)


def caption(scenes: Scenes, i: int, name_center: bool = False) -> str:
    """The prompt of scene i; `name_center` writes the default position out."""

    def noun(k: int) -> str:
        return f"{COLORS[scenes.color[i, k]]} {SHAPES[scenes.shape[i, k]]}"

    ground = f"on a {COLORS[scenes.background[i]]} background"
    if scenes.relation[i] >= 0:
        return f"a {noun(0)} {RELATIONS[scenes.relation[i]]} a {noun(1)} {ground}"
    size = "" if scenes.size[i] == 1 else f"{SIZES[scenes.size[i]]} "
    cell = int(scenes.cell[i, 0])
    position = f" {POSITIONS[cell]}" if cell or name_center else ""
    return f"a {size}{noun(0)}{position} {ground}"


def held_out(scenes: Scenes) -> NDArray[np.bool_]:
    """Which scenes never occur in training: one in sixteen, by a hash of the plain caption.

    The caption names the centre neither in training's hash nor here, so that both ways of asking
    for the centre are held out together.
    """
    digests = (hashlib.sha256(caption(scenes, i).encode()).digest() for i in range(len(scenes)))
    return np.fromiter((d[0] % 16 == 0 for d in digests), bool, len(scenes))


def sample_training(rng: np.random.Generator, n: int, pairs: float) -> Scenes:
    """Like `sample`, without held-out scenes."""
    scenes = sample(rng, n + n // 8 + 64, pairs)
    return scenes.take(np.flatnonzero(~held_out(scenes))[:n])


def _circle(x: Array, y: Array, r: Array) -> Array:
    return np.hypot(x, y) - r


def _square(x: Array, y: Array, r: Array) -> Array:
    return np.maximum(np.abs(x), np.abs(y)) - r * np.float32(np.sqrt(np.pi) / 2)


def _triangle(x: Array, y: Array, r: Array) -> Array:
    half_height = np.float32(np.sqrt(3) / 2) * r
    slope = (np.float32(np.sqrt(3)) * np.abs(x) - (y + half_height)) / 2
    return np.maximum(y - half_height, slope)


def _star(x: Array, y: Array, r: Array) -> Array:
    """A pentagram: inside it at most one of the five edge lines is crossed."""
    outer = r * np.float32(1 / np.sin(np.radians(72)))
    lower = y - outer * np.float32((1 - np.cos(np.radians(36))) / 2)
    inner = outer * np.float32(np.cos(np.radians(72)))
    first = second = np.full(np.broadcast_shapes(x.shape, y.shape), -1e9, np.float32)
    for k in range(5):
        angle = np.radians(72 * k - 90)
        d = x * np.float32(np.cos(angle)) + lower * np.float32(np.sin(angle)) - inner
        second = np.maximum(second, np.minimum(first, d))
        first = np.maximum(first, d)
    return second


def _heart(x: Array, y: Array, r: Array) -> Array:
    """A square on its corner with half discs on its two upper sides."""
    a = r * np.float32(2 / (1 + np.sqrt(2)))  # half the square's diagonal
    side, lower = np.abs(x), y - a * np.float32((np.sqrt(2) - 1) / 4)
    square = (side + np.abs(lower) - a) * np.float32(np.sqrt(0.5))
    disc = np.hypot(side - a / 2, lower + a / 2) - a * np.float32(np.sqrt(0.5))
    return np.minimum(square, disc)


def _diamond(x: Array, y: Array, r: Array) -> Array:
    return (np.abs(x) + np.abs(y) - r) * np.float32(np.sqrt(0.5))


def _cross(x: Array, y: Array, r: Array) -> Array:
    x, y = np.abs(x), np.abs(y)
    return np.maximum(np.maximum(x, y) - r, np.minimum(x, y) - r / 3)


def _ring(x: Array, y: Array, r: Array) -> Array:
    d = np.hypot(x, y)
    return np.maximum(d - r, np.float32(0.55) * r - d)


_DISTANCES: tuple[Callable[[Array, Array, Array], Array], ...] = (
    _circle,
    _square,
    _triangle,
    _star,
    _heart,
    _diamond,
    _cross,
    _ring,
)


@dataclass
class Placed:
    """A batch of scenes with every number of the drawing decided (jitter included)."""

    background: Array  # (n, 3) in 0..255
    color: Array  # (n, 2, 3)
    shape: Ints  # (n, 2)
    center: Array  # (n, 2, 2) x and y in pixels
    radius: Array  # (n, 2) half the diameter in pixels; 0 where there is no object


def place(scenes: Scenes, rng: np.random.Generator, jitter: bool = True) -> Placed:
    """Turn scenes into pixel geometry and colours, with the documented jitter."""
    n = len(scenes)
    scale = 1.0 if jitter else 0.0
    palette = np.array(list(PALETTE.values()), np.float32)
    index = np.concatenate([scenes.background[:, None], scenes.color], axis=1)
    noise = rng.uniform(-COLOR_JITTER, COLOR_JITTER, (n, 3, 3)) * scale
    colors = np.clip(palette[index] + noise, 0, 255).astype(np.float32)
    two = scenes.relation >= 0
    diameter = np.where(two, PAIR_DIAMETER, np.array(DIAMETERS)[scenes.size])[:, None]
    spread = 1 + rng.uniform(-DIAMETER_JITTER, DIAMETER_JITTER, (n, 2)) * scale
    radius = diameter * spread * (SIDE / 2)
    radius[~two, 1] = 0
    shift = rng.uniform(-CENTER_JITTER, CENTER_JITTER, (n, 2, 2)) * scale
    center = np.array(CENTERS)[scenes.cell] * SIDE + shift
    return Placed(
        colors[:, 0],
        colors[:, 1:],
        scenes.shape,
        center.astype(np.float32),
        radius.astype(np.float32),
    )


def draw(placed: Placed, side: int = SIDE, origin: Array | None = None) -> Array:
    """Draw a window of each scene: float32 (n, 3, side, side) in 0..255, anti-aliased.

    `origin` (n, 2) is each window's top left corner in pixels (x, y); zeros when left out.
    """
    n = len(placed.radius)
    origin = np.zeros((n, 2), np.float32) if origin is None else origin
    picture = np.empty((n, 3, side, side), np.float32)
    picture[:] = placed.background[:, :, None, None]
    pixel = np.arange(side) + 0.5
    for k in range(2):
        for s, distance in enumerate(_DISTANCES):
            rows = np.flatnonzero((placed.shape[:, k] == s) & (placed.radius[:, k] > 0))
            if not len(rows):
                continue
            middle = placed.center[rows, k] - origin[rows]
            x = np.subtract(pixel[None, None, :], middle[:, 0, None, None], dtype=np.float32)
            y = np.subtract(pixel[None, :, None], middle[:, 1, None, None], dtype=np.float32)
            d = distance(x, y, placed.radius[rows, k, None, None])
            cover = np.clip(np.float32(0.5) - d, 0, 1)[:, None]
            paint = placed.color[rows, k][:, :, None, None]
            picture[rows] += cover * (paint - picture[rows])
    return picture
