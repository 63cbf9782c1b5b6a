from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ortist.checkpoints.renamed import RenamedWeights, canonical_text_name, canonical_vae_name
from ortist.checkpoints.safetensors_file import SafetensorsFile
from ortist.errors import BadCheckpoint


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        (
            "decoder.mid_block.attentions.0.query.weight",
            "decoder.mid_block.attentions.0.to_q.weight",
        ),
        ("encoder.mid_block.attentions.0.key.bias", "encoder.mid_block.attentions.0.to_k.bias"),
        ("decoder.mid_block.attentions.0.value.bias", "decoder.mid_block.attentions.0.to_v.bias"),
        (
            "decoder.mid_block.attentions.0.proj_attn.weight",
            "decoder.mid_block.attentions.0.to_out.0.weight",
        ),
        ("decoder.mid_block.attentions.0.group_norm.weight", None),
        ("decoder.mid_block.attentions.0.to_q.weight", None),
        ("key.weight", None),
    ],
)
def test_old_names_of_the_autoencoders_attention(stored: str, name: str | None) -> None:
    assert canonical_vae_name(stored) == (name or stored)


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ("embeddings.position_embedding.weight", "text_model.embeddings.position_embedding.weight"),
        ("encoder.layers.0.mlp.fc1.bias", "text_model.encoder.layers.0.mlp.fc1.bias"),
        ("final_layer_norm.bias", "text_model.final_layer_norm.bias"),
        ("text_model.final_layer_norm.bias", None),
        ("text_projection.weight", None),
    ],
)
def test_names_of_the_text_encoder(stored: str, name: str | None) -> None:
    assert canonical_text_name(stored) == (name or stored)


def test_one_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    one = np.ones(2, np.float32)
    save_file({"final_layer_norm.bias": one, "text_model.final_layer_norm.bias": one * 2}, path)
    with pytest.raises(BadCheckpoint) as caught:
        RenamedWeights(SafetensorsFile(path), canonical_text_name, path)
    assert "'final_layer_norm.bias'" in caught.value.message
    assert "'text_model.final_layer_norm.bias'" in caught.value.message
