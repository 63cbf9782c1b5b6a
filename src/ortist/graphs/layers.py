"""Blocks that the components share: each emits one module of the reference architecture.

Every function takes the module's name in the state dict, relative to the builder's scope, and
reads the weights below it. Images are [n, c, h, w], token sequences [n, length, width]; sizes
that a module needs (channels in, features in) are taken from the value it is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ortist.graphs.builder import FLOAT, FLOAT16, GraphBuilder, Value, dims_of

LAYER_NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class GroupNormSpec:
    """Constants of the group normalisations of a model.

    Attributes:
        groups: number of channel groups that share a mean and a variance.
        epsilon: added to the variance.
    """

    groups: int
    epsilon: float


@dataclass(frozen=True)
class AttentionSpec:
    """Constants of an attention module.

    Attributes:
        heads: number of attention heads.
        head_dim: width of one head.
        upcast: in a float16 graph, compute scores and softmax in float32.
        qkv_bias: whether the query, key and value projections have a bias.
    """

    heads: int
    head_dim: int
    upcast: bool = False
    qkv_bias: bool = False


# Activations


def silu(b: GraphBuilder, x: Value) -> Value:
    """`x * sigmoid(x)`, also called swish."""
    return b.mul(x, b.sigmoid(x))


def gelu(b: GraphBuilder, x: Value) -> Value:
    """`x * Phi(x)` with the exact normal distribution function Phi (Hendrycks, Gimpel 2016).

    Written as x * (erf(x / sqrt 2) + 1) * 0.5, the order that ONNX Runtime fuses to one Gelu.
    """
    phi = b.add(b.erf(b.div(x, math.sqrt(2))), 1.0)
    return b.mul(b.mul(x, phi), 0.5)


def quick_gelu(b: GraphBuilder, x: Value) -> Value:
    """`x * sigmoid(1.702 x)`, the approximation that OpenAI's CLIP was trained with."""
    return b.mul(x, b.sigmoid(b.mul(x, 1.702)))


# Linear maps and convolutions


def linear(b: GraphBuilder, name: str, x: Value, features: int, *, bias: bool = True) -> Value:
    """Linear map of the last axis to `features`.

    A matrix [n, in] goes through Gemm with the weight as stored; anything longer through MatMul
    with the weight transposed when it is written, so that no Transpose runs.
    """
    given = dims_of(x)
    width = _fixed(given[-1], b.path(name))
    with b.scope(name):
        offset = b.weight("bias", (features,)) if bias else None
        if len(given) == 2:
            return b.gemm(x, b.weight("weight", (features, width)), offset)
        product = b.matmul(x, b.weight("weight", (features, width), "transpose"))
        return product if offset is None else b.add(product, offset)


def conv(
    b: GraphBuilder,
    name: str,
    x: Value,
    channels: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    pads: tuple[int, int, int, int] | None = None,
    bias: bool = True,
) -> Value:
    """Convolution to `channels` with a square kernel.

    Args:
        b: the graph.
        name: module name.
        x: images.
        channels: output channels.
        kernel: side of the kernel.
        stride: step in both directions.
        pads: zeros at top, left, bottom, right; by default (kernel - 1) // 2 everywhere.
        bias: whether the module has one.
    """
    given = _fixed(dims_of(x, rank=4)[1], b.path(name))
    if pads is None:
        half = (kernel - 1) // 2
        pads = (half, half, half, half)
    with b.scope(name):
        weight = b.weight("weight", (channels, given, kernel, kernel))
        offset = b.weight("bias", (channels,)) if bias else None
        return b.conv(x, weight, offset, stride=stride, pads=pads)


def downsample(b: GraphBuilder, name: str, x: Value, *, padding: int = 1) -> Value:
    """Halve height and width (rounding up) with a 3x3 convolution of stride 2.

    Padding 0 stands for one row and column of zeros at the bottom and right only, as the
    autoencoder's encoder has it.
    """
    channels = _fixed(dims_of(x, rank=4)[1], b.path(name))
    pads = (0, 0, 1, 1) if padding == 0 else (padding, padding, padding, padding)
    with b.scope(name):
        return conv(b, "conv", x, channels, stride=2, pads=pads)


def upsample(b: GraphBuilder, name: str, x: Value, *, like: Value | None = None) -> Value:
    """Double height and width by repeating pixels, then a 3x3 convolution.

    Args:
        b: the graph.
        name: module name.
        x: images.
        like: an image whose height and width the result is cropped to. Halving rounds up, so
            on the way back an odd size comes out one too large.
    """
    channels = _fixed(dims_of(x, rank=4)[1], b.path(name))
    with b.scope(name):
        x = b.upsample_nearest(x)
        if like is not None:
            x = b.slice(x, b.ints(0, 0), b.shape(like, 2, 4), axes=(2, 3))
        return conv(b, "conv", x, channels)


# Normalisation


def group_norm(b: GraphBuilder, name: str, x: Value, spec: GroupNormSpec) -> Value:
    """Group normalisation of images (Wu, He 2018).

    Opset 17 has no operator for it: the groups are laid out as the channels of an
    InstanceNormalization, the form exporters write and fusions look for. In a float16 graph
    the statistics are taken in float32, because sums of squares leave the float16 range.
    """
    channels = _fixed(dims_of(x, rank=4)[1], b.path(name))
    with b.scope(name):
        ones = b.constant(np.ones(spec.groups, dtype=np.float32))
        zeros = b.constant(np.zeros(spec.groups, dtype=np.float32))
        grouped = b.reshape(b.cast(x, FLOAT), (0, spec.groups, -1))
        normed = b.instance_norm(grouped, ones, zeros, spec.epsilon)
        normed = b.cast(b.reshape_like(normed, x), b.dtype)
        scaled = b.mul(normed, b.weight("weight", (channels,), "channels"))
        return b.add(scaled, b.weight("bias", (channels,), "channels"))


def layer_norm(b: GraphBuilder, name: str, x: Value, epsilon: float = LAYER_NORM_EPSILON) -> Value:
    """Layer normalisation over the last axis (Ba, Kiros, Hinton 2016)."""
    width = _fixed(dims_of(x)[-1], b.path(name))
    with b.scope(name):
        return b.layer_norm(x, b.weight("weight", (width,)), b.weight("bias", (width,)), epsilon)


# Residual block


def resnet_block(
    b: GraphBuilder,
    name: str,
    x: Value,
    channels: int,
    norm: GroupNormSpec,
    *,
    time: Value | None = None,
    output_scale: float = 1.0,
) -> Value:
    """Residual block: twice (group norm, SiLU, 3x3 convolution), plus its input.

    Args:
        b: the graph.
        name: module name.
        x: images; a 1x1 convolution fits them to `channels` where that differs.
        channels: output channels.
        norm: constants of both normalisations.
        time: time embedding [n or 1, width] *after* its SiLU, added between the two
            convolutions; None for a block without one (the autoencoder's).
        output_scale: the sum is divided by this.
    """
    given = _fixed(dims_of(x, rank=4)[1], b.path(name))
    with b.scope(name):
        h = silu(b, group_norm(b, "norm1", x, norm))
        h = conv(b, "conv1", h, channels)
        if time is not None:
            h = b.add(h, b.unsqueeze(linear(b, "time_emb_proj", time, channels), 2, 3))
        h = silu(b, group_norm(b, "norm2", h, norm))
        h = conv(b, "conv2", h, channels)
        if given != channels:
            x = conv(b, "conv_shortcut", x, channels, kernel=1)
        out = b.add(x, h)
        return out if output_scale == 1.0 else b.div(out, output_scale)


# Attention


def multi_head_attention(
    b: GraphBuilder,
    query: Value,
    key: Value,
    value: Value,
    spec: AttentionSpec,
    *,
    mask: Value | None = None,
) -> Value:
    """`softmax(q k^T / sqrt(head_dim) + mask) v` per head (Vaswani and others 2017).

    Args:
        b: the graph.
        query: [n, targets, heads * head_dim].
        key: [n, sources, heads * head_dim].
        value: as `key`.
        spec: heads, and whether scores are computed in float32.
        mask: added to the scores, broadcast over [n, heads, targets, sources], in the dtype of
            the scores; see `causal_mask`.

    Returns:
        [n, targets, heads * head_dim].
    """
    upcast = spec.upcast and b.dtype == FLOAT16
    heads = (0, 0, spec.heads, spec.head_dim)
    q = b.transpose(b.reshape(query, heads), (0, 2, 1, 3))
    k = b.transpose(b.reshape(key, heads), (0, 2, 3, 1))
    v = b.transpose(b.reshape(value, heads), (0, 2, 1, 3))
    if upcast:
        q, k = b.cast(q, FLOAT), b.cast(k, FLOAT)
    # Scaling q instead of the scores keeps float16 scores small.
    scores = b.matmul(b.mul(q, spec.head_dim**-0.5), k)
    if mask is not None:
        scores = b.add(scores, mask)
    mixed = b.matmul(b.cast(b.softmax(scores), b.dtype), v)
    return b.reshape(b.transpose(mixed, (0, 2, 1, 3)), (0, 0, spec.heads * spec.head_dim))


def attention(
    b: GraphBuilder, name: str, x: Value, spec: AttentionSpec, *, context: Value | None = None
) -> Value:
    """Attention module of diffusers (to_q, to_k, to_v, to_out.0), without residual.

    Args:
        b: the graph.
        name: module name.
        x: tokens [n, length, width] that ask.
        spec: heads and options.
        context: tokens that answer; None for self-attention.
    """
    width = _fixed(dims_of(x, rank=3)[-1], b.path(name))
    inner = spec.heads * spec.head_dim
    source = x if context is None else context
    with b.scope(name):
        query = linear(b, "to_q", x, inner, bias=spec.qkv_bias)
        key = linear(b, "to_k", source, inner, bias=spec.qkv_bias)
        value = linear(b, "to_v", source, inner, bias=spec.qkv_bias)
        mixed = multi_head_attention(b, query, key, value, spec)
        return linear(b, "to_out.0", mixed, width)


def causal_mask(b: GraphBuilder, tokens: Value) -> Value:
    """Additive mask [length, length]: 0 up to the diagonal, the lowest float above it.

    Args:
        b: the graph.
        tokens: any value [n, length, ...] whose run-time length the mask follows.
    """
    length = b.shape(tokens, 1, 2)
    lowest = b.scalar(float(np.finfo(b.dtype.numpy()).min))
    full = b.expand(lowest, b.concat([length, length], 0), (None, None))
    one = b.constant(np.asarray(1, dtype=np.int64))
    return b.op("Trilu", [full, one], dims=(None, None), attributes={"upper": 1})


def image_to_tokens(b: GraphBuilder, x: Value) -> Value:
    """[n, c, h, w] to [n, h * w, c]."""
    channels = _fixed(dims_of(x, rank=4)[1], "image channels")
    return b.transpose(b.reshape(x, (0, channels, -1)), (0, 2, 1))


def tokens_to_image(b: GraphBuilder, tokens: Value, like: Value) -> Value:
    """[n, h * w, c] back to the shape of the image `like` [n, c, h, w]."""
    return b.reshape_like(b.transpose(tokens, (0, 2, 1)), like)


def feed_forward_geglu(b: GraphBuilder, name: str, x: Value, *, expansion: int = 4) -> Value:
    """Feed-forward module with a gated GELU (Shazeer 2020): net.0.proj, then net.2."""
    width = _fixed(dims_of(x)[-1], b.path(name))
    inner = width * expansion
    with b.scope(name):
        both = linear(b, "net.0.proj", x, 2 * inner)
        hidden, gate = b.split(both, (inner, inner), axis=len(dims_of(x)) - 1)
        return linear(b, "net.2", b.mul(hidden, gelu(b, gate)), width)


# Time


def sinusoidal_embedding(
    b: GraphBuilder, steps: Value, width: int, *, flip_sin_to_cos: bool, freq_shift: float
) -> Value:
    """Sines and cosines of a number at geometrically falling frequencies (Ho and others 2020).

    Args:
        b: the graph.
        steps: float32 numbers of any shape [...], fractions allowed.
        width: numbers per step; an odd width ends in a zero.
        flip_sin_to_cos: cosines first, else sines first.
        freq_shift: subtracted from the number of frequencies in the exponent.

    Returns:
        [..., width] in float32.
    """
    half = width // 2
    # As the reference does it, the exponent is rounded to float32 before exp: at step 1000 the
    # last bit of a frequency is visible in the sine.
    exponent = np.float32(-math.log(10000)) * np.arange(half, dtype=np.float32)
    exponent = exponent / np.float32(half - freq_shift)
    frequencies = np.exp(exponent.astype(np.float64)).astype(np.float32)
    column = b.unsqueeze(steps, len(dims_of(steps)))
    angles = b.mul(column, b.constant(frequencies))
    waves = [b.cos(angles), b.sin(angles)] if flip_sin_to_cos else [b.sin(angles), b.cos(angles)]
    if width % 2:
        waves.append(b.mul(column, 0.0))
    return b.concat(waves, axis=len(dims_of(steps)))


def time_mlp(b: GraphBuilder, name: str, x: Value, features: int) -> Value:
    """Two linear layers with SiLU between them (linear_1, linear_2)."""
    with b.scope(name):
        return linear(b, "linear_2", silu(b, linear(b, "linear_1", x, features)), features)


def _fixed(dim: int | str | None, where: str) -> int:
    if not isinstance(dim, int):
        raise ValueError(f"{where}: the size has to be known, got {dim!r}")
    return dim
