"""The precisions a graph can be emitted in; apart, because naming one must not import onnx."""

from __future__ import annotations

from typing import Literal

Precision = Literal["fp32", "fp16"]
"""dtype of a graph's weights and of all arithmetic that needs no more than that."""
