"""Compares our full-size SD 1.5 UNet with diffusers in float32, same random weights.

    python benchmarks/unet_parity.py [--size 64] [--batch 1] [--timestep 999.5] [--threads 2]

Needs the extras `cpu` and `parity`, about 6 GB of memory and 4 GB of temporary disk; takes a
few minutes on two cores. Prints one JSON object; `--out benchmarks/results/unet_parity.json` keeps
it for docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from diffusers import __version__ as diffusers_version
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel

from ortist.graphs.unet import build_unet
from ortist.graphs.unet_config import UNetConfig

SD15: dict[str, Any] = {
    "block_out_channels": [320, 640, 1280, 1280],
    "down_block_types": [*["CrossAttnDownBlock2D"] * 3, "DownBlock2D"],
    "up_block_types": ["UpBlock2D", *["CrossAttnUpBlock2D"] * 3],
    "attention_head_dim": 8,
    "cross_attention_dim": 768,
    "sample_size": 64,
}


class TorchWeights:
    """The reference's own tensors as a weight source, without a copy."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def keys(self) -> Iterable[str]:
        """Names of all tensors."""
        return self.tensors.keys()

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape as stored."""
        return tuple(self.tensors[key].shape)

    def dtype(self, key: str) -> np.dtype:
        """Dtype as stored."""
        return self.load(key).dtype

    def load(self, key: str) -> np.ndarray:
        """The tensor."""
        return self.tensors[key].numpy()


def randomise(model: torch.nn.Module) -> None:
    """Weights that keep activations near 1, with no bias at zero and no norm neutral."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in model.state_dict().items():
        if tensor.ndim == 1:
            tensor.normal_(1.0 if name.endswith("weight") else 0.0, 0.2, generator=generator)
        else:
            tensor.normal_(0.0, tensor[0].numel() ** -0.5, generator=generator)


def main() -> None:
    """Run both and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=64, help="edge of the latents")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--timestep", type=float, default=999.5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(arguments.threads)

    # Made without numbers first: the class's own initialisation takes longer than the run.
    with torch.device("meta"):
        reference = UNet2DConditionModel(**SD15).eval()
    reference.to_empty(device="cpu")
    randomise(reference)
    rng = np.random.default_rng(0)
    feeds = {
        "sample": rng.standard_normal(
            (arguments.batch, 4, arguments.size, arguments.size), dtype=np.float32
        ),
        "timestep": np.asarray(arguments.timestep, dtype=np.float32),
        "encoder_hidden_states": rng.standard_normal(
            (arguments.batch, 77, SD15["cross_attention_dim"]), dtype=np.float32
        ),
    }
    start = time.perf_counter()
    expected = reference(*(torch.from_numpy(array) for array in feeds.values())).sample.numpy()
    torch_seconds = time.perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        start = time.perf_counter()
        model = build_unet(
            UNetConfig.from_json(SD15), TorchWeights(reference.state_dict()), dtype="fp32"
        )
        build_seconds = time.perf_counter() - start
        ir.save(model, path, external_data="model.onnx_data")
        save_seconds = time.perf_counter() - start - build_seconds
        nodes = model.graph.num_nodes()
        del model, reference
        gc.collect()

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = arguments.threads
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        start = time.perf_counter()
        found = np.asarray(session.run(["out_sample"], feeds)[0])
        ort_seconds = time.perf_counter() - start

    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    figures = {
        "model": "SD 1.5 UNet, random weights",
        "latents": [arguments.batch, 4, arguments.size, arguments.size],
        "timestep": arguments.timestep,
        "relative_error": error,
        "nodes": nodes,
        "build_seconds": round(build_seconds, 2),
        "save_seconds": round(save_seconds, 2),
        "diffusers_seconds": round(torch_seconds, 2),
        "onnxruntime_seconds": round(ort_seconds, 2),
        "peak_resident_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "versions": {
            "diffusers": diffusers_version,
            "torch": torch.__version__,
            "onnxruntime": onnxruntime.__version__,
            "python": platform.python_version(),
        },
    }
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
