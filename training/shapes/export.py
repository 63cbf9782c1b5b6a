"""Write the averaged weights of the trainings as a model in the diffusers layout, fp16.

    python export.py --state DIR --out ../../src/ortist/models/shapes

The folder is written beside its place and then renamed.
"""

# diffusers declares its classes too loosely for these checks.
# pyright: reportArgumentType=false, reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import captions
import torch
import train_unet
import train_vae
from diffusers import DDIMScheduler, StableDiffusionPipeline
from safetensors.torch import load_file, save_file

# What ortist takes where the user asks for nothing; measured best in README.md. Other tools skip
# keys that begin with an underscore.
DEFAULTS = {"num_inference_steps": 20, "guidance_scale": 2.0}


def _recommend(path: Path) -> None:
    """Add the recommended settings to a model_index.json."""
    index = json.loads(path.read_text())
    index["_ortist_defaults"] = DEFAULTS
    path.write_text(json.dumps(index, indent=2) + "\n")


def _name_as_published(path: Path) -> None:
    """Give CLIP's weights the names that every published checkpoint has.

    transformers 5 writes them without the prefix that older readers require; it reads both.
    """
    weights = {f"text_model.{name}": tensor for name, tensor in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})


def export(state: Path, out: Path) -> None:
    """Write the model folder `out`, replacing it."""
    tokenizer = captions.load_tokenizer(state / "tokenizer")
    vae = train_vae.build()
    vae.load_state_dict(torch.load(state / "vae.pt", weights_only=False)["mean"])
    # The latents have mean 0 and deviation 1 since `train_vae.py --phase standardise`.
    vae.register_to_config(scaling_factor=1.0)
    mean = torch.load(state / "unet.pt", weights_only=False)["mean"]
    unet, text = train_unet.build(), captions.build_text_encoder(tokenizer)
    unet.load_state_dict(mean["unet"])
    text.load_state_dict(mean["text"])
    scheduler = DDIMScheduler(
        num_train_timesteps=train_unet.STEPS,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="epsilon",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
        timestep_spacing="leading",
    )
    pipe = StableDiffusionPipeline(
        vae=vae,
        text_encoder=text,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        fresh, old = Path(folder) / "new", Path(folder) / "old"
        pipe.to(dtype=torch.float16).save_pretrained(fresh)
        shutil.rmtree(fresh / "tokenizer")
        captions.write_tokenizer(fresh / "tokenizer")
        _name_as_published(fresh / "text_encoder" / "model.safetensors")
        _recommend(fresh / "model_index.json")
        for path in fresh.rglob("*.safetensors"):
            path.chmod(0o644)
        if out.exists():
            out.rename(old)
        fresh.rename(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size / 1e6:.2f} MB")


def main() -> None:
    """Parse the command line and export."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    export(a.state, a.out)


if __name__ == "__main__":
    main()
