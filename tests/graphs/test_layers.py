"""Shared blocks against the same formulas in numpy, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ortist.graphs import layers
from ortist.graphs.builder import GraphBuilder, Value
from ortist.graphs.dims import Dims
from tests.tiny.graphs import run
from tests.tiny.weights import ArraySource, random_source

Array = np.ndarray


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def apply(
    x: Array,
    dims: Dims,
    block: Callable[[GraphBuilder, Value], Value],
    weights: ArraySource | None = None,
) -> Array:
    """What `block` makes of x."""
    b = GraphBuilder("block", weights or ArraySource({}), dtype="fp32")
    y = block(b, b.input("x", dims))
    b.output("y", y, tuple(None for _ in layers.dims_of(y)))
    return run(b.finish(), {"x": x})["y"]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


IMAGE: Dims = ("n", 6, "h", "w")


def test_activations() -> None:
    x = np.linspace(-6, 6, 97, dtype=np.float32)
    erf = np.asarray([math.erf(value / math.sqrt(2)) for value in x.tolist()])
    np.testing.assert_allclose(apply(x, ("n",), layers.silu), x / (1 + np.exp(-x)), atol=1e-6)
    np.testing.assert_allclose(apply(x, ("n",), layers.gelu), x * (1 + erf) / 2, atol=1e-6)
    expected = x / (1 + np.exp(-1.702 * x))
    np.testing.assert_allclose(apply(x, ("n",), layers.quick_gelu), expected, atol=1e-6)


def test_group_norm() -> None:
    x = 3 * normal(2, 6, 4, 5) + 1
    weights = random_source({"norm.weight": (6,), "norm.bias": (6,)})
    spec = layers.GroupNormSpec(groups=3, epsilon=0.1)
    groups = x.reshape(2, 3, -1).astype(np.float64)
    mean, variance = groups.mean(-1, keepdims=True), groups.var(-1, keepdims=True)
    normed = ((groups - mean) / np.sqrt(variance + 0.1)).reshape(x.shape)
    gain, offset = (weights.arrays[f"norm.{k}"].reshape(6, 1, 1) for k in ("weight", "bias"))
    found = apply(x, IMAGE, lambda b, v: layers.group_norm(b, "norm", v, spec), weights)
    np.testing.assert_allclose(found, normed * gain + offset, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_linear_of_matrices_and_sequences(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    weights = random_source({"to.weight": (5, 4), "to.bias": (5,)})
    dims: Dims = (*["n", "length"][: len(shape) - 1], 4)
    found = apply(x, dims, lambda b, v: layers.linear(b, "to", v, 5), weights)
    expected = x @ weights.arrays["to.weight"].T + weights.arrays["to.bias"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("padding", [0, 1])
def test_downsample_pads_as_asked(padding: int) -> None:
    x = normal(1, 6, 6, 8)
    weights = random_source({"down.conv.weight": (6, 6, 3, 3), "down.conv.bias": (6,)})
    sides = (0, 1) if padding == 0 else (1, 1)
    padded = np.pad(x, ((0, 0), (0, 0), sides, sides))
    kernel = weights.arrays["down.conv.weight"]
    expected = np.empty((1, 6, 3, 4), np.float32)
    for row in range(3):
        for column in range(4):
            patch = padded[0, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            expected[0, :, row, column] = np.einsum("oihw,ihw->o", kernel, patch)
    expected += weights.arrays["down.conv.bias"].reshape(6, 1, 1)
    found = apply(x, IMAGE, lambda b, v: layers.downsample(b, "down", v, padding=padding), weights)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_upsample_is_cropped_to_the_image_it_meets() -> None:
    x = normal(1, 6, 4, 5)
    weights = random_source({"up.conv.weight": (6, 6, 3, 3), "up.conv.bias": (6,)})

    def block(b: GraphBuilder, value: Value) -> Value:
        smaller = b.slice(b.upsample_nearest(value), b.ints(0, 1), b.ints(7, 10), (2, 3))
        return layers.upsample(b, "up", value, like=smaller)

    assert apply(x, IMAGE, block, weights).shape == (1, 6, 7, 9)
    whole = apply(x, IMAGE, lambda b, v: layers.upsample(b, "up", v), weights)
    assert whole.shape == (1, 6, 8, 10)


def test_attention_with_a_causal_mask_looks_back_only() -> None:
    x = normal(2, 5, 8)
    spec = layers.AttentionSpec(heads=2, head_dim=4)

    def block(b: GraphBuilder, value: Value) -> Value:
        mask = layers.causal_mask(b, value)
        return layers.multi_head_attention(b, value, value, value, spec, mask=mask)

    heads = x.reshape(2, 5, 2, 4).transpose(0, 2, 1, 3).astype(np.float64)
    scores = heads @ heads.transpose(0, 1, 3, 2) / 2
    scores[:, :, np.triu(np.ones((5, 5), bool), 1)] = -np.inf
    expected = (softmax(scores) @ heads).transpose(0, 2, 1, 3).reshape(2, 5, 8)
    np.testing.assert_allclose(apply(x, ("n", "length", 8), block), expected, atol=1e-5)


@pytest.mark.parametrize("width", [8, 9])
@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_sinusoidal_embedding(width: int, flip: bool, shift: float) -> None:
    steps = np.asarray([0, 0.5, 1, 999.5], np.float32)
    found = apply(
        steps,
        ("n",),
        lambda b, v: layers.sinusoidal_embedding(
            b, v, width, flip_sin_to_cos=flip, freq_shift=shift
        ),
    )
    angles = steps[:, None] * 10_000.0 ** (-np.arange(4) / (4 - shift))
    halves = [np.cos(angles), np.sin(angles)] if flip else [np.sin(angles), np.cos(angles)]
    expected = np.concatenate([*halves, np.zeros((4, width - 8))], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_tokens_and_back() -> None:
    x = normal(2, 6, 3, 4)
    tokens = apply(x, IMAGE, layers.image_to_tokens)
    np.testing.assert_array_equal(tokens, x.reshape(2, 6, 12).transpose(0, 2, 1))
    found = apply(
        x, IMAGE, lambda b, v: layers.tokens_to_image(b, layers.image_to_tokens(b, v), like=v)
    )
    np.testing.assert_array_equal(found, x)
