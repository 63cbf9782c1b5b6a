"""Says what is in a 128x128 picture of `shapes`, and whether it is what the prompt asked for.

This is the judge of the model, so it shares no code with the drawing code: it has its own palette
constants (from the prompt's definition), its own colour space, and its own geometry.

    python training/shapes/checker.py PICTURES --prompts prompts.txt [--json]

How a picture is read:

1. The background is the palette colour that most of the border is nearest to, in CIE Lab.
2. Foreground is what differs from it by more than noise, and by more than half of what the
   strongest pixel close by differs. The second condition puts an edge in the middle of its blur.
3. Every palette colour's solid regions are objects. Anything else that is plainly visible counts as
   an object too, one without a colour or a shape: a stray blob is an error, not noise.
4. Each object gets a soft coverage map, is moved to its centroid, scaled to unit area, and
   compared with templates of the eight shapes by soft intersection over union. The number of
   holes is counted apart, since a disc with a pinhole overlaps a disc almost perfectly.

Size. A drawing's "diameter" may be the width of a shape or that of the circle around it. The
size class comes from the area of the object, turned into a diameter by one factor for each shape
(`_DIAMETER`). The factors lie midway between the two conventions, so that either of them lands in
the same class. Position is the mean of the bounding box centre and the centroid, for the same
reason: a triangle's two centres are a sixth of its height apart.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

__all__ = [
    "Asked",
    "AskedObject",
    "Group",
    "Rate",
    "Score",
    "Seen",
    "SeenObject",
    "Table",
    "check",
    "evaluate",
    "look",
    "parse_prompt",
]

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

SIDE = 128
PALETTE: Mapping[str, tuple[int, int, int]] = {
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
SIZES = ("small", "medium", "large")
POSITIONS = (
    ("top left", "top", "top right"),
    ("left", "center", "right"),
    ("bottom left", "bottom", "bottom right"),
)
RELATIONS = ("left of", "right of", "above", "below")

# Distances in Lab. The two closest palette colours are 33 apart, so that a colour further than
# this from all of them has left its own half of the way to the next.
COLOR_LIMIT = 24.0
BACKGROUND_LIMIT = 20.0
BACKGROUND_SHARE = 0.85  # of the border; an object may touch it, a second background may not
NOISE_LIMIT = 12.0
PURE_LIMIT = 20.0  # distance of a pixel inside an object from the object's colour
PURE_SHARE = 0.88

# What counts as an object. 5x5 pixels of another colour are seen at a glance (the smallest shape
# asked for has about 400); a stain fainter than any two palette colours differ, only if large.
OBJECT_PIXELS = 24
FAINT_LIMIT = 25.0
STAIN_PIXELS = 120
# Edges that are off by the same distance cost a shape overlap in proportion to its outline over the
# root of its area: 3.5 for a circle, 4 to 4.6 for square, diamond, heart and triangle, 5.4 for a
# cross, 6.6 for ring and star. The limits are about 1 - 0.025 of that. Drawings with noise and blur
# stay 0.03 or more above them; a lumpy disc has 0.89.
SHAPE_LIMITS: Mapping[str, float] = {
    "circle": 0.91,
    "square": 0.91,
    "diamond": 0.91,
    "heart": 0.90,
    "triangle": 0.89,
    "cross": 0.87,
    "star": 0.84,
    "ring": 0.84,
}
SHAPE_MARGIN = 0.03
HOLE_SHARE = 0.015

# Diameters as fractions of the picture. Classes are 0.30, 0.50 and 0.75 wide; the limits are the
# geometric means. Outside the outer two no size word fits.
SIZE_LIMITS = (0.19, 0.387, 0.612, 0.97)
POSITION_LIMITS = (0.39, 0.61)
RELATION_GAP = 0.15


# ---------------------------------------------------------------------------------------- prompts


@dataclass(frozen=True, slots=True)
class AskedObject:
    """One object of a prompt. Two-object prompts say nothing of size and position."""

    color: str
    shape: str
    size: str | None
    position: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a prompt asks for. `relation` is that of the first object to the second."""

    background: str
    objects: tuple[AskedObject, ...]
    relation: str | None = None


_C, _S = "|".join(COLORS), "|".join(SHAPES)
_SINGLE = re.compile(
    rf"an? (?:(?P<size>small|large) )?(?P<color>{_C}) (?P<shape>{_S})"
    r"(?: (?P<place>in the center|at the (?:top|bottom|left|right)"
    r"|in the (?:top|bottom) (?:left|right) corner))?"
    rf" on an? (?P<background>{_C}) background"
)
_DOUBLE = re.compile(
    rf"an? (?P<color>{_C}) (?P<shape>{_S}) (?P<relation>left of|right of|above|below)"
    rf" an? (?P<color2>{_C}) (?P<shape2>{_S}) on an? (?P<background>{_C}) background"
)


def parse_prompt(prompt: str) -> Asked:
    """Read a prompt of the model's grammar; ValueError if it is not one."""
    text = " ".join(prompt.split())
    if match := _SINGLE.fullmatch(text):
        place = match["place"] or "in the center"
        position = re.sub(r"^(in|at) the | corner$", "", place)
        size = match["size"] or "medium"
        objects = (AskedObject(match["color"], match["shape"], size, position),)
        asked = Asked(match["background"], objects)
    elif match := _DOUBLE.fullmatch(text):
        first = AskedObject(match["color"], match["shape"], None, None)
        second = AskedObject(match["color2"], match["shape2"], None, None)
        asked = Asked(match["background"], (first, second), match["relation"])
    else:
        raise ValueError(f"not a prompt of the grammar of shapes: {prompt!r}")
    if any(item.color == asked.background for item in asked.objects):
        raise ValueError(f"object and background have the same colour: {prompt!r}")
    return asked


# ----------------------------------------------------------------------------------------- colour

_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
     [0.0193339, 0.1191920, 0.9503041]]
)  # fmt: skip
_WHITE = _TO_XYZ.sum(axis=1)
_VALUES = np.arange(256) / 255
_LINEAR = np.where(_VALUES <= 0.04045, _VALUES / 12.92, ((_VALUES + 0.055) / 1.055) ** 2.4).astype(
    np.float32
)
_TO_RATIO = (_TO_XYZ / _WHITE[:, None]).T.astype(np.float32)
# Cube roots by table: they were a fifth of the time. The step's error is below 0.1 in L.
_STEPS = 1 << 14
_RATIOS = np.arange(_STEPS + 2) / _STEPS
_ROOTS = np.where(
    _RATIOS > 216 / 24389, np.cbrt(_RATIOS), (24389 / 27 * _RATIOS + 16) / 116
).astype(np.float32)
_TO_LAB = np.array([[0, 500, 0], [116, -500, 200], [0, 0, -200]], dtype=np.float32)
_LAB_ORIGIN = np.array([-16, 0, 0], dtype=np.float32)


def _lab(rgb: Bytes) -> Floats:
    """CIE Lab of sRGB bytes, D65."""
    ratio = _LINEAR[rgb] @ _TO_RATIO
    f = _ROOTS[(ratio * _STEPS + 0.5).astype(np.int32)]
    return f @ _TO_LAB + _LAB_ORIGIN


_PALETTE_LAB = _lab(np.array(list(PALETTE.values()), dtype=np.uint8))


def _palette_distances(lab: Floats) -> Floats:
    """Distance of each of n colours to each palette colour: shape (n, 12)."""
    squared = (
        (lab**2).sum(axis=1)[:, None]
        - 2 * lab @ _PALETTE_LAB.T
        + (_PALETTE_LAB**2).sum(axis=1)[None]
    )
    return np.sqrt(np.maximum(squared, 0))


def _name_color(lab: Floats, limit: float) -> str | None:
    distances = _palette_distances(lab[None])[0]
    best = int(distances.argmin())
    return COLORS[best] if distances[best] <= limit else None


# ---------------------------------------------------------------------------------------- geometry

Inside = Callable[[Floats, Floats], Bools]  # x to the right, y up


def _polygon(points: Sequence[tuple[float, float]]) -> Inside:
    def inside(x: Floats, y: Floats) -> Bools:
        crossed = np.zeros(x.shape, dtype=np.bool_)
        for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[0]], strict=True):
            if y0 != y1:
                spans = (y0 > y) != (y1 > y)
                crossed ^= spans & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
        return crossed

    return inside


def _ngon(corners: int, inner: float | None = None) -> Inside:
    """A regular polygon with a corner at the top, or a star with the inner radius `inner`."""
    steps = corners if inner is None else 2 * corners
    points: list[tuple[float, float]] = []
    for step in range(steps):
        angle = math.pi / 2 + 2 * math.pi * step / steps
        radius = 1.0 if inner is None or step % 2 == 0 else inner
        points.append((radius * math.cos(angle), radius * math.sin(angle)))
    return _polygon(points)


def _heart_curve() -> Inside:
    turns = [2 * math.pi * step / 90 for step in range(90)]
    return _polygon([
        (
            math.sin(t) ** 3,
            (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16,
        )
        for t in turns
    ])  # fmt: skip


def _heart_square() -> Inside:
    """A square on its corner with half discs on its upper sides."""
    c, r = 0.35, 0.35 * math.sqrt(2)

    def inside(x: Floats, y: Floats) -> Bools:
        lobes = (np.abs(x) - c) ** 2 + (y - c) ** 2 <= r * r
        return lobes | (np.abs(x) + np.abs(y) <= 2 * c)

    return inside


def _heart_lobes(lobe: float, tip: float) -> Inside:
    """Two discs of radius `lobe`, and the tangents from them to a point `tip` below."""
    c = 1 - lobe
    far, reach = math.hypot(c, tip), math.sqrt(c * c + tip * tip - lobe * lobe)
    # Where the tangent from (0, -tip) meets the right disc.
    turn = math.atan2(tip, c) - math.asin(lobe / far)
    touch = (reach * math.cos(turn), -tip + reach * math.sin(turn))
    body = _polygon([(0.0, -tip), touch, (c, 0.0), (-c, 0.0), (-touch[0], touch[1])])

    def inside(x: Floats, y: Floats) -> Bools:
        return ((np.abs(x) - c) ** 2 + y**2 <= lobe * lobe) | body(x, y)

    return inside


def _outlines() -> list[tuple[str, Inside]]:
    """The shapes. Where the name leaves a choice of outline, each common one is a template."""
    return [
        ("circle", lambda x, y: x**2 + y**2 <= 1),
        ("square", lambda x, y: np.maximum(np.abs(x), np.abs(y)) <= 0.8),
        ("triangle", _ngon(3)),
        ("star", _ngon(5, 0.382)),
        ("star", _ngon(5, 0.45)),
        ("heart", lambda x, y: (1.4 * x**2 + 1.4 * y**2 - 1) ** 3 <= 1.4**2.5 * x**2 * y**3),
        ("heart", _heart_curve()),
        ("heart", _heart_square()),
        ("heart", _heart_lobes(0.5, 1.15)),
        ("heart", _heart_lobes(0.54, 1.3)),
        ("diamond", lambda x, y: np.abs(x) + np.abs(y) <= 1),
        (
            "cross",
            lambda x, y: (
                (np.maximum(np.abs(x), np.abs(y)) <= 0.9)
                & (np.minimum(np.abs(x), np.abs(y)) <= 0.3)
            ),
        ),
        ("ring", lambda x, y: (x**2 + y**2 <= 1) & (x**2 + y**2 >= 0.55**2)),
    ]


# Diameter over the larger side of the bounding box: see the module's docstring. A square's side
# may be the diameter or 0.71 of it, a triangle's 0.87 of it or 1.15 times.
_DIAMETER = {
    "circle": 1.0,
    "square": 2**0.25,
    "triangle": 1.0,
    "star": 1.025,
    "heart": 1.0,
    "diamond": 1.0,
    "cross": 1.0,
    "ring": 1.0,
}

_GRID = 56
_REACH = 1.12  # half the side of the canonical square, in units of the square root of the area
_CELLS = (np.arange(_GRID) + 0.5) / _GRID * 2 * _REACH - _REACH


@dataclass(frozen=True, slots=True)
class _Template:
    shape: str
    coverage: NDArray[np.float32]  # (_GRID * _GRID,), at unit area around the centroid
    extent: float  # larger side of the bounding box at unit area


@cache
def _templates() -> tuple[tuple[_Template, ...], NDArray[np.float32]]:
    """Each template once, and all of them stacked at three scales: (3, templates, cells)."""
    templates: list[_Template] = []
    scaled: list[list[NDArray[np.float32]]] = []
    line = np.linspace(-1.5, 1.5, 601)
    x, y = np.meshgrid(line, line)
    over = 4
    fine = (np.arange(_GRID * over) + 0.5) / (_GRID * over) * 2 * _REACH - _REACH
    u, v = np.meshgrid(fine, -fine)
    for shape, inside in _outlines():
        hit = inside(x, y)
        root = math.sqrt(hit.sum()) * (line[1] - line[0])
        cx, cy = float(x[hit].mean()), float(y[hit].mean())
        extent = max(float(np.ptp(x[hit])), float(np.ptp(y[hit]))) / root
        row: list[NDArray[np.float32]] = []
        for scale in (1.0, 0.97, 1.03):
            drawn = inside(cx + u * root / scale, cy + v * root / scale).astype(np.float32)
            drawn = drawn.reshape(_GRID, over, _GRID, over).mean(axis=(1, 3))
            # A picture's edge is about a pixel wide whatever the size of the object.
            row.append(np.asarray(ndimage.gaussian_filter(drawn, 0.6), dtype=np.float32).ravel())
        templates.append(_Template(shape, row[0], extent))
        scaled.append(row)
    return tuple(templates), np.array(scaled, dtype=np.float32).transpose(1, 0, 2)


# ------------------------------------------------------------------------------------------- look


@dataclass(frozen=True, slots=True)
class SeenObject:
    """One object found. A property that no word of the grammar describes is None."""

    color: str | None
    shape: str | None
    size: str | None
    position: str
    diameter: float  # fraction of the picture's side
    center: tuple[float, float]  # x, y as fractions of the picture
    confidence: float  # of the shape, 0 to 1
    area: float  # pixels
    overlap: Mapping[str, float]  # soft intersection over union with each shape
    holes: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What is in a picture, largest object first."""

    background: str | None
    objects: tuple[SeenObject, ...]


def _background(smooth: Bytes, lab: Floats) -> tuple[str | None, Floats]:
    """The background's name (None if no palette colour fits) and its RGB."""
    rim = np.ones((SIDE, SIDE), dtype=np.bool_)
    rim[3:-3, 3:-3] = False
    distances = _palette_distances(lab[rim])
    nearest = distances.argmin(axis=1)
    winner = int(np.bincount(nearest, minlength=len(COLORS)).argmax())
    chosen = nearest == winner
    rgb = np.median(smooth[rim][chosen], axis=0)
    good = chosen & (distances[:, winner] <= BACKGROUND_LIMIT + 8)
    center = _lab(np.rint(rgb).astype(np.uint8))
    fits = good.mean() >= BACKGROUND_SHARE
    return _name_color(center, BACKGROUND_LIMIT) if fits else None, rgb


_SQUARE3 = np.ones((3, 3), dtype=np.bool_)


def _eroded(region: Bools, rounds: int) -> Bools:
    return np.asarray(ndimage.binary_erosion(region, _SQUARE3, iterations=rounds), np.bool_)


def _box(region: Bools, margin: int) -> tuple[slice, slice]:
    """The region's bounding box and `margin` pixels around it, within the picture."""
    rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
    spans = (slice(max(0, int(at[0]) - margin), int(at[-1]) + 1 + margin) for at in (rows, columns))
    top, left = spans
    return top, left


def _label(mask: Bools) -> tuple[NDArray[np.int32], int]:
    labels = np.zeros(mask.shape, dtype=np.int32)
    count = ndimage.label(mask, structure=_SQUARE3, output=labels)
    return labels, int(np.asarray(count))


def _coverage(picture: Floats, background: Floats, color: Floats, where: Bools) -> Floats:
    """How far each pixel is from the background's colour towards the object's, 0 to 1.

    Steeper than linear about one half, so that noise on flat parts is cut off at both ends.
    """
    step = color - background
    alpha = (picture - background) @ step / max(float(step @ step), 1.0)
    return np.clip((alpha - 0.5) * 1.6 + 0.5, 0, 1) * where


def _canonical(coverage: Floats) -> tuple[Floats, float, float, float]:
    """Coverage resampled at unit area around the centroid; the area and the centroid (x, y)."""
    area = float(coverage.sum())
    line = np.arange(SIDE)
    cx = float(coverage.sum(axis=0) @ line) / area
    cy = float(coverage.sum(axis=1) @ line) / area
    root = math.sqrt(area)
    # Bilinear sampling on an axis-aligned grid is a product of two thin matrices.
    rows, columns = _weights(cy + _CELLS * root), _weights(cx + _CELLS * root)
    grid = rows @ coverage @ columns.T
    return grid, area, cx, cy


def _weights(at: Floats) -> Floats:
    """Rows that interpolate linearly at positions `at` of a line of SIDE samples; 0 outside."""
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(SIDE)[None])).astype(np.float32)


def _overlaps(grid: Floats) -> tuple[dict[str, float], dict[str, float]]:
    """Best soft intersection over union for each shape, and the extent of the winner."""
    templates, stack = _templates()
    cells = grid.astype(np.float32).ravel()
    both = np.minimum(stack, cells).sum(axis=2)
    total = stack.sum(axis=2) + cells.sum()
    scores = (both / (total - both)).max(axis=0)
    best: dict[str, float] = {}
    extent: dict[str, float] = {}
    for template, score in zip(templates, scores.tolist(), strict=True):
        if score > best.get(template.shape, -1.0):
            best[template.shape] = score
            extent[template.shape] = template.extent
    return best, extent


def _count_holes(solid: Bools, area: float) -> int:
    outside = np.pad(~solid[_box(solid, margin=0)], 1, constant_values=True)
    labels = np.zeros(outside.shape, dtype=np.int32)
    ndimage.label(outside, output=labels)
    sizes = np.bincount(labels.ravel())[1:]
    sizes[labels[0, 0] - 1] = 0
    return int((sizes >= max(5.0, HOLE_SHARE * area)).sum())


def _edges(profile: Floats) -> tuple[float, float]:
    """Where a row of maxima first and last crosses one half, between samples."""
    above = np.flatnonzero(profile >= 0.5)
    low, high = int(above[0]), int(above[-1])
    left = low - (profile[low] - 0.5) / (profile[low] - profile[low - 1]) if low else -0.5
    right = (
        high + (profile[high] - 0.5) / (profile[high] - profile[high + 1])
        if high < SIDE - 1
        else SIDE - 0.5
    )
    return float(left), float(right)


def _place(x: float, y: float) -> str:
    column, row = (sum(value > limit for limit in POSITION_LIMITS) for value in (x, y))
    return POSITIONS[row][column]


def _size(diameter: float) -> str | None:
    for name, low, high in zip(SIZES, SIZE_LIMITS, SIZE_LIMITS[1:], strict=False):
        if low <= diameter < high:
            return name
    return None


@dataclass(frozen=True, slots=True)
class _Scene:
    """A picture and what is known of it before its objects."""

    picture: Floats
    lab: Floats
    background: Floats


def _inner(region: Bools) -> Bools:
    """The region without its edge, as far as something is left of it."""
    box = _box(region, margin=2)
    for rounds in (2, 1):
        inner = np.zeros_like(region)
        inner[box] = _eroded(region[box], rounds)
        if np.count_nonzero(inner) >= 12:
            return inner
    return region


def _describe(scene: _Scene, solid: Bools, reach: Bools) -> SeenObject | None:
    """Measure one object: `solid` are pixels surely in it, `reach` those that may be."""
    inner = _inner(solid)
    color_rgb = np.median(scene.picture[inner], axis=0)
    color_lab = np.median(scene.lab[inner], axis=0)
    away = np.linalg.norm(scene.lab[inner] - color_lab, axis=1)
    pure = (away <= PURE_LIMIT).mean() >= PURE_SHARE
    color = _name_color(color_lab, COLOR_LIMIT) if pure else None

    coverage = _coverage(scene.picture, scene.background, color_rgb, reach)
    half = coverage >= 0.5
    if not half.any():
        return None
    grid, area, cx, cy = _canonical(coverage)
    overlap, extent = _overlaps(grid)
    ranked = sorted(overlap, key=lambda name: overlap[name], reverse=True)
    first, second = ranked[0], ranked[1]
    margin = overlap[first] - overlap[second]
    holes = _count_holes(half, area)
    clear = overlap[first] >= SHAPE_LIMITS[first] and margin >= SHAPE_MARGIN
    shape = first if clear and holes == (first == "ring") else None

    left, right = _edges(coverage.max(axis=0))
    top, bottom = _edges(coverage.max(axis=1))
    if shape is None:
        diameter = max(right - left, bottom - top) / SIDE
    else:
        diameter = math.sqrt(area) * extent[shape] * _DIAMETER[shape] / SIDE
    x = ((left + right) / 2 + cx + 1) / 2 / SIDE
    y = ((top + bottom) / 2 + cy + 1) / 2 / SIDE
    confidence = min(1.0, margin / 0.1) * min(1.0, max(0.0, (overlap[first] - 0.75) / 0.2))
    return SeenObject(
        color=color,
        shape=shape,
        size=_size(diameter),
        position=_place(x, y),
        diameter=round(diameter, 4),
        center=(round(x, 4), round(y, 4)),
        confidence=round(confidence, 3) if shape else 0.0,
        area=round(area, 1),
        overlap={name: round(overlap[name], 4) for name in ranked},
        holes=holes,
    )


def _split(scene: _Scene, solid: Bools, reach: Bools) -> list[SeenObject]:
    """Two objects of one colour that touch: take them apart at their neck, or give up."""
    for rounds in range(1, 7):
        labels, count = _label(_eroded(solid, rounds))
        sizes = np.bincount(labels.ravel())[1:]
        kept = np.flatnonzero(sizes >= max(20.0, 0.2 * sizes.sum())) + 1 if count else []
        if len(kept) != 2:
            continue
        seeds = np.where(np.isin(labels, kept), labels, 0)
        owner = _owners(seeds)
        parts = [_describe(scene, solid & (owner == k), reach & (owner == k)) for k in kept]
        if all(part is not None and part.shape is not None for part in parts):
            return [part for part in parts if part is not None]
    return []


def _owners(seeds: NDArray[np.int32]) -> NDArray[np.int32]:
    """The label of the nearest seed, for every pixel."""
    indices = ndimage.distance_transform_edt(
        seeds == 0, return_distances=False, return_indices=True
    )
    rows, columns = np.asarray(indices)
    return seeds[rows, columns]


def look(picture: Bytes) -> Seen:
    """Find the background and the objects of a 128x128 RGB picture of bytes."""
    if picture.shape != (SIDE, SIDE, 3) or picture.dtype != np.uint8:
        raise ValueError(f"expected ({SIDE}, {SIDE}, 3) uint8, got {picture.shape} {picture.dtype}")
    exact = picture.astype(np.float32)
    blurred = ndimage.gaussian_filter(exact, (0.7, 0.7, 0), truncate=3)
    smooth = np.rint(blurred).clip(0, 255).astype(np.uint8)
    lab = _lab(smooth)
    name, background = _background(smooth, lab)
    scene = _Scene(exact, lab, background)

    offset = lab - _lab(np.rint(background).astype(np.uint8))
    away = np.sqrt((offset * offset) @ np.ones(3, dtype=np.float32))
    strongest = ndimage.maximum_filter(away, size=9)
    mask = away > np.maximum(NOISE_LIMIT, 0.5 * strongest)
    if not mask.any():
        return Seen(name, ())

    # Solid regions of one palette colour. Opening drops the thin seams where an edge's blend of
    # two colours happens to be nearest to a third.
    nearest = np.full((SIDE, SIDE), -1)
    nearest[mask] = _palette_distances(lab[mask]).argmin(axis=1)
    cores = np.zeros((SIDE, SIDE), dtype=np.int32)
    count = 0
    for index in np.flatnonzero(np.bincount(nearest[mask]) >= OBJECT_PIXELS):
        region = nearest == index
        box = _box(region, margin=1)
        labels, found = _label(np.asarray(ndimage.binary_opening(region[box], _SQUARE3), np.bool_))
        sizes = np.bincount(labels.ravel(), minlength=found + 1)
        for label in np.flatnonzero(sizes[1:] >= OBJECT_PIXELS) + 1:
            core = labels == label
            if _visible(away[box][core]):
                count += 1
                cores[box][core] = count

    objects: list[SeenObject] = []
    islands, found = _label(mask)
    held = np.zeros(found + 1, dtype=np.bool_)
    if count:
        held[np.unique(islands[cores > 0])] = True
        held[0] = False
        home = held[islands]
        near = np.asarray(ndimage.maximum_filter(home, size=7), np.bool_)
        owner = _owners(cores) if count > 1 else np.ones_like(cores)
        # An island without a core must not leak into its neighbour's coverage.
        near &= ~(mask & ~home)
        for label in range(1, count + 1):
            mine = owner == label
            item = _describe(scene, home & mine, near & mine)
            if item is None:
                continue
            parts = _split(scene, home & mine, near & mine) if item.shape is None else []
            objects.extend(parts or [item])
    sizes = np.bincount(islands.ravel(), minlength=found + 1)
    for label in np.flatnonzero(~held & (sizes >= OBJECT_PIXELS)):
        if label and _visible(away[islands == label]):
            objects.append(_stray(islands == label))
    objects.sort(key=lambda item: item.area, reverse=True)
    return Seen(name, tuple(objects))


def _visible(away: Floats) -> bool:
    """Whether pixels this far from the background make an object rather than a faint stain."""
    return len(away) >= STAIN_PIXELS or float(np.percentile(away, 75)) >= FAINT_LIMIT


def _stray(region: Bools) -> SeenObject:
    """Something visible that has no colour or no body: a line, a smear."""
    rows, columns = np.nonzero(region)
    x, y = (float(columns.mean()) + 0.5) / SIDE, (float(rows.mean()) + 0.5) / SIDE
    diameter = (max(int(np.ptp(rows)), int(np.ptp(columns))) + 1) / SIDE
    return SeenObject(
        color=None, shape=None, size=_size(diameter), position=_place(x, y),
        diameter=round(diameter, 4), center=(round(x, 4), round(y, 4)), confidence=0.0,
        area=float(region.sum()), overlap={}, holes=0,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ score


@dataclass(frozen=True, slots=True)
class Score:
    """Which of the asked attributes a picture has.

    One object: background, color, shape, size, position. Two: background, color (both), shape
    (both), relation. A picture with too few or too many objects fails `shape`, whatever the
    others are.
    """

    asked: Asked
    seen: Seen
    attributes: Mapping[str, bool]

    @property
    def all(self) -> bool:
        """Whether the picture is right in every asked way."""
        return all(self.attributes.values())

    def __getitem__(self, attribute: str) -> bool:
        return self.attributes[attribute]


def _relation_holds(relation: str, first: SeenObject, second: SeenObject) -> bool:
    """Along the asked axis the centres are apart, and further than along the other."""
    dx, dy = (b - a for a, b in zip(first.center, second.center, strict=True))
    along, across = (dx, dy) if relation in ("left of", "right of") else (dy, dx)
    forward = along if relation in ("left of", "above") else -along
    return forward >= RELATION_GAP and forward > abs(across)


def check(picture: Bytes, prompt: str | Asked) -> Score:
    """Compare a picture with a prompt."""
    asked = parse_prompt(prompt) if isinstance(prompt, str) else prompt
    seen = look(picture)
    found = seen.objects
    background = seen.background == asked.background
    exact = len(found) == len(asked.objects)
    if len(asked.objects) == 1:
        wanted = asked.objects[0]
        item = found[0] if found else None
        return Score(asked, seen, {
            "background": background,
            "color": item is not None and item.color == wanted.color,
            "shape": item is not None and exact and item.shape == wanted.shape,
            "size": item is not None and item.size == wanted.size,
            "position": item is not None and item.position == wanted.position,
        })  # fmt: skip

    assert asked.relation is not None
    best = {"background": background, "color": False, "shape": False, "relation": False}
    if len(found) < 2:
        return Score(asked, seen, best)
    # Which of the two is which: the pairing that agrees with the prompt most, what the objects
    # are before where they are.
    rank = (-1, False)
    a, b = asked.objects
    for one, two in ((found[0], found[1]), (found[1], found[0])):
        colors = (one.color == a.color) + (two.color == b.color)
        shapes = (one.shape == a.shape) + (two.shape == b.shape)
        relation = _relation_holds(asked.relation, one, two)
        if (colors + shapes, relation) > rank:
            rank = (colors + shapes, relation)
            best["color"], best["shape"] = colors == 2, shapes == 2 and exact
            best["relation"] = relation
    return Score(asked, seen, best)


# ------------------------------------------------------------------------------------------ table


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of pictures, with its Wilson 95 % interval."""

    right: int
    n: int
    rate: float
    low: float
    high: float

    @classmethod
    def of(cls, right: int, n: int) -> Rate:
        """The rate of `right` out of `n`."""
        if n == 0:
            return cls(0, 0, 0.0, 0.0, 1.0)
        z, p = 1.959964, right / n
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return cls(right, n, p, max(0.0, middle - half), min(1.0, middle + half))


@dataclass(frozen=True, slots=True)
class Group:
    """The rates of one kind of prompt; the last, "all", is that of pictures right in every way."""

    n: int
    rates: Mapping[str, Rate]


@dataclass(frozen=True, slots=True)
class Table:
    """Rates of single-object and of two-object prompts; a kind without prompts is None."""

    single: Group | None
    double: Group | None
    scores: tuple[Score, ...]

    def as_json(self) -> dict[str, Any]:
        """The rates as plain values, without the scores of single pictures."""
        groups = {"single": self.single, "double": self.double}
        return {name: asdict(group) if group else None for name, group in groups.items()}

    def __str__(self) -> str:
        lines = [f"{'':<24}{'right':>9}  {'rate':>6}   95 % interval"]
        for title, group in (("one object", self.single), ("two objects", self.double)):
            if group is None:
                continue
            for name, r in group.rates.items():
                lines.append(
                    f"{title + ': ' + name:<24}{f'{r.right}/{r.n}':>9}  {r.rate:6.1%}"
                    f"   {r.low:.1%} to {r.high:.1%}"
                )
        return "\n".join(lines)


def _group(scores: Sequence[Score]) -> Group | None:
    if not scores:
        return None
    n = len(scores)
    rates = {
        name: Rate.of(sum(score[name] for score in scores), n) for name in scores[0].attributes
    }
    rates["all"] = Rate.of(sum(score.all for score in scores), n)
    return Group(n, rates)


def evaluate(pictures: Iterable[Bytes], prompts: Iterable[str]) -> Table:
    """Check pictures against their prompts, pair by pair."""
    scores = tuple(
        check(picture, prompt) for picture, prompt in zip(pictures, prompts, strict=True)
    )
    return Table(
        single=_group([score for score in scores if len(score.asked.objects) == 1]),
        double=_group([score for score in scores if len(score.asked.objects) == 2]),
        scores=scores,
    )


def _load(source: Path) -> list[tuple[str, Bytes]]:
    """Named pictures of a folder (sorted by name), a picture, or an .npy of (n, 128, 128, 3)."""
    if source.suffix == ".npy":
        return [(f"{source.name}[{i}]", item) for i, item in enumerate(np.load(source))]
    from PIL import Image

    kinds = {".png", ".webp", ".bmp"}
    files = [source]
    if source.is_dir():
        files = sorted(path for path in source.iterdir() if path.suffix.lower() in kinds)
    return [(file.name, np.asarray(Image.open(file).convert("RGB"))) for file in files]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check pictures against their prompts.")
    parser.add_argument("source", type=Path, help="a picture, a folder of them, or an .npy")
    parser.add_argument("--prompts", type=Path, required=True, help="one prompt a line")
    parser.add_argument("--json", action="store_true", help="print rates and failures as JSON")
    options = parser.parse_args(arguments)
    named = _load(options.source)
    prompts = [line for line in options.prompts.read_text().splitlines() if line.strip()]
    if len(named) != len(prompts):
        parser.error(f"{len(named)} pictures but {len(prompts)} prompts")
    table = evaluate((picture for _, picture in named), prompts)
    wrong = [
        {
            "picture": name,
            "prompt": prompt,
            "wrong": [key for key, right in score.attributes.items() if not right],
            "seen": asdict(score.seen),
        }
        for (name, _), prompt, score in zip(named, prompts, table.scores, strict=True)
        if not score.all
    ]
    if options.json:
        print(json.dumps({**table.as_json(), "failures": wrong}, indent=2))
        return 0
    print(table)
    for item in wrong:
        print(f"{item['picture']}: {item['prompt']}: wrong {', '.join(item['wrong'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
