"""Names of a bundle's folders and files: the layout that optimum-onnx reads and writes."""

from __future__ import annotations

GRAPH_FILE = "model.onnx"
DATA_FILE = "model.onnx_data"
CONFIG_FILE = "config.json"
ROLES = ("text_encoder", "text_encoder_2", "unet", "vae_encoder", "vae_decoder")
"""The folders that hold a graph."""
