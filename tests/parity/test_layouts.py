"""Our key maps against diffusers' own conversion of single files: same names, same tensors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from ortist.checkpoints.detect import detect
from ortist.checkpoints.layouts import KeyMap
from ortist.checkpoints.layouts_text import clip_key_map, open_clip_key_map
from ortist.checkpoints.layouts_unet import unet_key_map
from ortist.checkpoints.layouts_vae import vae_key_map
from ortist.checkpoints.mapped import MappedWeights
from ortist.checkpoints.shipped import shipped_config, shipped_models, text_map, unet_map, vae_map
from ortist.graphs.clip_config import ClipTextConfig
from ortist.graphs.unet_config import UNetConfig
from ortist.graphs.vae_config import VaeConfig
from tests.parity.conftest import load
from tests.tiny.clip import clip_config
from tests.tiny.single_file import UNET, VAE, prefixed, single_file_shapes
from tests.tiny.unet import CONFIGS, Json
from tests.tiny.vae import vae_config
from tests.tiny.weights import ArraySource, Shapes, random_source

pytestmark = pytest.mark.parity

PATH = Path("single.safetensors")
# The reference numbers the blocks of a level by one count for all levels, and knows no name for
# the guidance embedding of LCM.
UNEVEN = {"plain_mid_uneven_layers"}
LCM = {"lcm", "lcm_sdxl", "sd1-lcm", "sdxl-lcm"}
TINY_UNETS = sorted(set(CONFIGS) - UNEVEN - LCM)
FULL_UNETS = sorted({model.unet for model in shipped_models().values()} - LCM)


class Closable(ArraySource):
    def close(self) -> None: ...


@pytest.fixture(scope="session")
def reference(oracle: Any) -> Any:
    return load("diffusers.loaders.single_file_utils")


def stored_tensors(shapes: Shapes) -> dict[str, np.ndarray]:
    return random_source(shapes).arrays


def as_torch(oracle: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {key: oracle.torch.from_numpy(array) for key, array in arrays.items()}


def check_same(
    arrays: dict[str, np.ndarray], keys: KeyMap, prefix: str, theirs: dict[str, Any]
) -> None:
    ours = MappedWeights(Closable(arrays), keys.to_diffusers(), PATH, prefix=prefix)
    assert set(ours.keys()) == set(theirs)
    for key, tensor in theirs.items():
        assert ours.shape(key) == tuple(tensor.shape), key
        np.testing.assert_array_equal(ours.load(key), tensor.numpy(), err_msg=key)


def check_same_names(keys: KeyMap, theirs: dict[str, Any]) -> None:
    assert keys.diffusers_shapes() == {key: tuple(t.shape) for key, t in theirs.items()}


def meta(oracle: Any, shapes: Shapes) -> dict[str, Any]:
    return {key: oracle.torch.empty(shape, device="meta") for key, shape in shapes.items()}


def class_defaults(oracle: Any, config: Mapping[str, object]) -> Json:
    """The config as the reference's converter expects it: complete."""
    signature = inspect.signature(oracle.diffusers.UNet2DConditionModel.__init__)
    defaults = {k: p.default for k, p in signature.parameters.items() if k != "self"}
    return {**defaults, **config}


@pytest.mark.parametrize("name", TINY_UNETS)
def test_tiny_unets(oracle: Any, reference: Any, name: str) -> None:
    keys = unet_key_map(UNetConfig.from_json(CONFIGS[name]))
    arrays = stored_tensors(prefixed(keys.single_shapes(), UNET))
    theirs = reference.convert_ldm_unet_checkpoint(
        as_torch(oracle, arrays), class_defaults(oracle, CONFIGS[name])
    )
    check_same(arrays, keys, UNET, theirs)


@pytest.mark.parametrize("name", sorted(LCM & set(CONFIGS)))
def test_tiny_lcm_unets_but_for_the_guidance_embedding(
    oracle: Any, reference: Any, name: str
) -> None:
    keys = unet_key_map(UNetConfig.from_json(CONFIGS[name]))
    ours = keys.diffusers_shapes()
    theirs = reference.convert_ldm_unet_checkpoint(
        meta(oracle, prefixed(keys.single_shapes(), UNET)), class_defaults(oracle, CONFIGS[name])
    )
    del ours["time_embedding.cond_proj.weight"]
    assert ours == {key: tuple(tensor.shape) for key, tensor in theirs.items()}


@pytest.mark.parametrize("name", FULL_UNETS)
def test_full_unets(oracle: Any, reference: Any, name: str) -> None:
    config = class_defaults(oracle, shipped_config("unet", name))
    keys = unet_map(name)
    stored = meta(oracle, prefixed(keys.single_shapes(), UNET))
    check_same_names(keys, reference.convert_ldm_unet_checkpoint(stored, config))


@pytest.mark.parametrize("name", sorted({model.unet for model in shipped_models().values()}))
def test_the_reference_model_has_just_these_tensors(oracle: Any, name: str) -> None:
    config = shipped_config("unet", name)
    arguments = {key: value for key, value in config.items() if not key.startswith("_")}
    with oracle.torch.device("meta"):
        model = oracle.diffusers.UNet2DConditionModel(**arguments)
    check_same_names(unet_map(name), model.state_dict())


@pytest.mark.parametrize("levels", [[8], [8, 16], [8, 16, 16, 24]])
@pytest.mark.parametrize("prefix", [VAE, ""])
def test_tiny_autoencoders(oracle: Any, reference: Any, levels: list[int], prefix: str) -> None:
    config = vae_config(levels)
    keys = vae_key_map(VaeConfig.from_json(config))
    arrays = stored_tensors(prefixed(keys.single_shapes(), prefix))
    theirs = reference.convert_ldm_vae_checkpoint(as_torch(oracle, arrays), config)
    check_same(arrays, keys, prefix, theirs)


@pytest.mark.parametrize("name", ["sd", "sdxl"])
def test_full_autoencoders(oracle: Any, reference: Any, name: str) -> None:
    keys, config = vae_map(name), shipped_config("vae", name)
    stored = meta(oracle, prefixed(keys.single_shapes(), VAE))
    check_same_names(keys, reference.convert_ldm_vae_checkpoint(stored, config))
    arguments = {key: value for key, value in config.items() if not key.startswith("_")}
    with oracle.torch.device("meta"):
        model = oracle.diffusers.AutoencoderKL(**arguments)
    check_same_names(keys, model.state_dict())


@pytest.mark.parametrize(
    "prefix", ["cond_stage_model.transformer.", "conditioner.embedders.0.transformer."]
)
def test_tiny_clip(oracle: Any, reference: Any, prefix: str) -> None:
    keys = clip_key_map(ClipTextConfig.from_json(clip_config()))
    arrays = stored_tensors(prefixed(keys.single_shapes(), prefix))
    theirs = reference.convert_ldm_clip_checkpoint(as_torch(oracle, arrays))
    check_same(arrays, keys, prefix, theirs)


class TextModel:
    """What the reference asks of a text model: its width."""

    class config:  # noqa: N801
        hidden_size = 32


@pytest.mark.parametrize("projected", [False, True])
def test_tiny_open_clip(oracle: Any, reference: Any, projected: bool) -> None:
    # The reference takes the width of query, key and value from the projection, so it has to be
    # square: as it is in every published model.
    kind = "CLIPTextModelWithProjection" if projected else "CLIPTextModel"
    config = ClipTextConfig.from_json(clip_config(architectures=[kind], projection_dim=32))
    keys = open_clip_key_map(config)
    prefix = "conditioner.embedders.1.model."
    arrays = stored_tensors(prefixed(keys.single_shapes(), prefix))
    theirs = reference.convert_open_clip_checkpoint(TextModel(), as_torch(oracle, arrays), prefix)
    check_same(arrays, keys, prefix, theirs)


@pytest.mark.parametrize(
    ("model", "config", "prefix"),
    [
        ("sd2", "openclip-h", "cond_stage_model.model."),
        ("sdxl", "openclip-bigg", "conditioner.embedders.1.model."),
        ("sdxl-refiner", "openclip-bigg", "conditioner.embedders.0.model."),
    ],
)
def test_full_open_clip(oracle: Any, reference: Any, model: str, config: str, prefix: str) -> None:
    """From whole files, with the layer and the projection that SD 2.x leaves out."""

    class Text:
        class config:  # noqa: N801
            hidden_size = shipped_config("text", "openclip-h")["hidden_size"]

    stored = meta(oracle, single_file_shapes(model))
    theirs = reference.convert_open_clip_checkpoint(Text(), stored, prefix)
    check_same_names(text_map(config, open_clip=True), theirs)


@pytest.mark.parametrize("name", ["clip-l", "openclip-h", "openclip-bigg"])
def test_the_reference_text_encoders_have_just_these_tensors(oracle: Any, name: str) -> None:
    config = shipped_config("text", name)
    (class_name,) = config["architectures"]  # type: ignore[misc]
    with oracle.torch.device("meta"):
        text_config = oracle.transformers.CLIPTextConfig(**config)
        model = getattr(oracle.transformers, str(class_name))(text_config)
    theirs = {
        key if key.startswith(("text_model.", "text_projection.")) else f"text_model.{key}": tensor
        for key, tensor in model.state_dict().items()
        if not key.endswith("position_ids")
    }
    check_same_names(text_map(name, open_clip=False), theirs)


# Our name of the model -> the reference's.
KINDS = {
    "sd1": "v1",
    "sd1-inpaint": "inpainting",
    "sd2": "v2",
    "sd2-inpaint": "inpainting_v2",
    "sdxl": "xl_base",
    "sdxl-inpaint": "xl_inpaint",
    "sdxl-refiner": "xl_refiner",
    "ssd-1b": "xl_base",
}


@pytest.mark.parametrize("name", KINDS)
def test_the_reference_takes_the_file_for_the_same_kind(
    oracle: Any, reference: Any, name: str
) -> None:
    shapes = single_file_shapes(name)
    assert reference.infer_diffusers_model_type(meta(oracle, shapes)) == KINDS[name]
    assert name in detect(shapes).models


def write_single(path: Path, keys: KeyMap, prefix: str) -> dict[str, np.ndarray]:
    arrays = stored_tensors(prefixed(keys.single_shapes(), prefix))
    save_file(arrays, path)
    return arrays


@pytest.mark.parametrize("name", ["sd1", "sd2", "sdxl_base", "sdxl_refiner"])
def test_unets_loaded_from_a_single_file(oracle: Any, tmp_path: Path, name: str) -> None:
    """Through the whole of the reference's loader, with a local configuration."""
    keys = unet_key_map(UNetConfig.from_json(CONFIGS[name]))
    arrays = write_single(tmp_path / "model.safetensors", keys, UNET)
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    model = oracle.diffusers.UNet2DConditionModel.from_single_file(
        str(tmp_path / "model.safetensors"), config=str(tmp_path), local_files_only=True
    )
    check_same(arrays, keys, UNET, model.state_dict())


def test_autoencoders_loaded_from_a_single_file(oracle: Any, tmp_path: Path) -> None:
    config = vae_config([8, 16, 16, 24])
    keys = vae_key_map(VaeConfig.from_json(config))
    arrays = write_single(tmp_path / "model.safetensors", keys, VAE)
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = oracle.diffusers.AutoencoderKL.from_single_file(
        str(tmp_path / "model.safetensors"), config=str(tmp_path), local_files_only=True
    )
    check_same(arrays, keys, VAE, model.state_dict())
