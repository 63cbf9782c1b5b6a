"""Logarithm, sine and cosine in float32, in the order of operations of PyTorch's vector code.

PyTorch draws normal numbers on x86 processors with AVX2 functions that are the Cephes library's
`logf`, `sinf` and `cosf` (Moshier, netlib.org/cephes, single precision), one polynomial evaluated
for eight values at a time, with the compiler fusing each multiplication and the addition after it
into one rounding. Other implementations differ in the last bit, and a last bit is a
different picture to whoever compares hashes. So the same polynomials are evaluated here, with the
same roundings.

How: arrays are float64 and hold float32 values. A product of two float32 values is exact in
float64, so `a * b + c` in float64, rounded once to float32, is the fused operation (but for a
second rounding in about one case in 2**28; tests/parity/test_noise.py goes through every input
that can occur, all 2**24 of them, and finds no difference).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


def single(value: float) -> float:
    """`value` rounded to float32, as a Python float."""
    return float(np.float32(value))


_SQRT_HALF = single(math.sqrt(0.5))
# log(1 + x) = x - x**2 / 2 + x**3 * P(x), highest power first.
_LOG_P = tuple(
    single(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)
# ln 2 in two parts; the high part has so few bits that its multiples are exact.
_LN2_LOW = single(-2.12194440e-4)
_LN2_HIGH = 0.693359375

_FOUR_OVER_PI = single(4 / math.pi)
# pi / 4 in three parts (Cody and Waite), so that x - j * pi / 4 loses nothing.
_QUARTER_PI = (0.78515625, single(2.4187564849853515625e-4), single(3.77489497744594108e-8))
_SIN_P = tuple(single(c) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
_COS_P = tuple(single(c) for c in (2.443315711809948e-5, -1.388731625493765e-3))
_COS_P_LAST = single(4.166664568298827e-2)


def _round(x: Float64) -> Float64:
    """Round to float32 in place."""
    x[...] = x.astype(np.float32)
    return x


def _fma(a: Float64, b: Float64 | float, c: Float64 | float) -> Float64:
    """`a * b + c` with one rounding to float32, in place of `a`."""
    np.multiply(a, b, out=a)
    np.add(a, c, out=a)
    return _round(a)


def log_of_24_bits(k: Int32) -> Float64:
    """log(k / 2**24) for whole k from 1 to 2**24.

    Args:
        k: int32, any shape.

    Returns:
        float64 array of float32 values, same shape.
    """
    bits = k.astype(np.float32).view(np.int32)
    exponent = ((bits >> 23) - (126 + 24)).astype(np.float64)
    mantissa = ((bits & 0x7FFFFF) | 0x3F000000).view(np.float32).astype(np.float64)  # [0.5, 1)
    low = mantissa < _SQRT_HALF
    exponent -= low
    mantissa *= low + 1.0  # doubled where it is below sqrt(1/2): exact
    x = mantissa
    x -= 1.0
    z = _round(x * x)
    y = x * _LOG_P[0]
    y += _LOG_P[1]
    _round(y)
    for coefficient in _LOG_P[2:]:
        _fma(y, x, coefficient)
    y *= x
    _round(y)
    _fma(y, z, _round(exponent * _LN2_LOW))
    z *= 0.5
    y -= z
    x += _round(y)
    _round(x)
    exponent *= _LN2_HIGH
    x += exponent
    return _round(x)


def sin_cos(x: Float64) -> tuple[Float64, Float64]:
    """Sine and cosine for 0 <= x < 8192.

    Args:
        x: float64 array of float32 values; overwritten.

    Returns:
        (sine, cosine), float64 arrays of float32 values.
    """
    octant = ((x * _FOUR_OVER_PI).astype(np.float32).astype(np.int32) + 1) & ~1
    turns = octant.astype(np.float64)
    part = np.empty_like(x)
    for piece in _QUARTER_PI:
        np.multiply(turns, piece, out=part)
        x -= part
        _round(x)
    z = _round(x * x)
    cosine = z * _COS_P[0]
    cosine += _COS_P[1]
    _round(cosine)
    _fma(cosine, z, _COS_P_LAST)
    cosine *= z
    _round(cosine)
    cosine *= z
    np.multiply(z, 0.5, out=part)
    cosine -= part
    _round(cosine)
    cosine += 1.0
    _round(cosine)
    sine = z * _SIN_P[0]
    sine += _SIN_P[1]
    _round(sine)
    _fma(sine, z, _SIN_P[2])
    sine *= z
    _round(sine)
    _fma(sine, x, x)
    swap = (octant & 2) != 0
    # The sign flips wherever the third bit of the octant says so.
    sin_of = np.where(swap, cosine, sine)
    cos_of = np.where(swap, sine, cosine)
    sin_of *= 1 - ((octant & 4) >> 1)
    cos_of *= (((octant - 2) & 4) >> 1) - 1
    return sin_of, cos_of
