"""Small CLIP text encoders: configurations as transformers writes them, and their tensors."""

from __future__ import annotations

from tests.tiny.weights import Shapes

# openai/clip-vit-large-patch14 as it lies in SD 1.5, written by transformers 4.22.
CLIP_L: dict[str, object] = {
    "_name_or_path": "openai/clip-vit-large-patch14",
    "architectures": ["CLIPTextModel"],
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "dropout": 0.0,
    "eos_token_id": 2,
    "hidden_act": "quick_gelu",
    "hidden_size": 768,
    "initializer_factor": 1.0,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 77,
    "model_type": "clip_text_model",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "projection_dim": 768,
    "torch_dtype": "float32",
    "transformers_version": "4.22.0.dev0",
    "vocab_size": 49408,
}
# The encoder of SD 2.1: OpenCLIP ViT-H without its last layer.
OPENCLIP_H: dict[str, object] = {
    **CLIP_L,
    "hidden_act": "gelu",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 23,
    "projection_dim": 512,
}
# The second encoder of SDXL: OpenCLIP ViT-bigG.
OPENCLIP_BIGG: dict[str, object] = {
    **CLIP_L,
    "architectures": ["CLIPTextModelWithProjection"],
    "hidden_act": "gelu",
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_attention_heads": 20,
    "num_hidden_layers": 32,
    "projection_dim": 1280,
}


def clip_config(**changes: object) -> dict[str, object]:
    """A tiny plain encoder's config.json as transformers 5 writes it."""
    return {
        "architectures": ["CLIPTextModel"],
        "attention_dropout": 0.0,
        "bos_token_id": 62,
        "dtype": "float32",
        "eos_token_id": 63,
        "hidden_act": "quick_gelu",
        "hidden_size": 32,
        "initializer_factor": 1.0,
        "initializer_range": 0.02,
        "intermediate_size": 48,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 20,
        "model_type": "clip_text_model",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "pad_token_id": 63,
        "projection_dim": 24,
        "transformers_version": "5.24.0",
        "vocab_size": 64,
        **changes,
    }


def clip_shapes(config: dict[str, object], prefix: str = "text_model.") -> Shapes:
    """The tensors of an encoder; `prefix` is "" in files of transformers 5."""

    def size(key: str) -> int:
        value = config[key]
        assert isinstance(value, int)
        return value

    width, inner = size("hidden_size"), size("intermediate_size")
    shapes: Shapes = {
        "embeddings.token_embedding.weight": (size("vocab_size"), width),
        "embeddings.position_embedding.weight": (size("max_position_embeddings"), width),
        "final_layer_norm.weight": (width,),
        "final_layer_norm.bias": (width,),
    }
    for index in range(size("num_hidden_layers")):
        layer = f"encoder.layers.{index}"
        for module in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes[f"{layer}.self_attn.{module}.weight"] = (width, width)
            shapes[f"{layer}.self_attn.{module}.bias"] = (width,)
        for module in ("layer_norm1", "layer_norm2"):
            shapes[f"{layer}.{module}.weight"] = (width,)
            shapes[f"{layer}.{module}.bias"] = (width,)
        for module, out, given in (("fc1", inner, width), ("fc2", width, inner)):
            shapes[f"{layer}.mlp.{module}.weight"] = (out, given)
            shapes[f"{layer}.mlp.{module}.bias"] = (out,)
    shapes = {prefix + key: shape for key, shape in shapes.items()}
    if config["architectures"] == ["CLIPTextModelWithProjection"]:
        shapes["text_projection.weight"] = (size("projection_dim"), width)
    return shapes
