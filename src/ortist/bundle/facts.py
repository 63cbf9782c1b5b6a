"""What the files of a bundle say about its model, as `ModelFacts`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeVar, cast

from ortist.bundle.graph_io import GraphFacts, Signature
from ortist.errors import BadBundle
from ortist.families.spec import ModelFacts
from ortist.files import JsonObject, JsonValue

DEFAULTS_KEY = "_ortist_defaults"
"""Key of model_index.json under which a model's author recommends settings: any of
num_inference_steps, guidance_scale and sampler. Other tools skip keys that begin with an
underscore."""

_SCALING_FACTOR = 0.18215  # AutoencoderKL's default, which configs of SD 1.x leave out
_TINY_SCALING_FACTOR = 1.0
_FIX = "fetch or convert the model again"
_DIALECT = "convert the original checkpoint with ortist"

_Number = TypeVar("_Number", int, float)


class GraphWithConfig(Protocol):
    """One graph of a bundle: its path, what it declares, and its config.json."""

    @property
    def path(self) -> Path:
        """The graph file."""
        ...

    @property
    def config(self) -> JsonObject:
        """The config.json beside it."""
        ...

    @property
    def facts(self) -> GraphFacts:
        """What the graph declares."""
        ...


def model_facts(graphs: Mapping[str, GraphWithConfig], index: JsonObject) -> ModelFacts:
    """Bring together what graphs, configurations and model_index.json say.

    Args:
        graphs: by role; has unet, vae_decoder and the text encoders.
        index: model_index.json.

    Raises:
        BadBundle: something is missing, or the graphs are named in a way not read yet.
    """
    unet, decoder = graphs["unet"], graphs["vae_decoder"]
    sample = _tensor(unet, "unet", "sample")
    _tensor(unet, "unet", "timestep")
    _tensor(unet, "unet", "encoder_hidden_states")
    _output(unet, "unet", "out_sample")
    latents = _tensor(decoder, "vae_decoder", "latent_sample")
    _output(decoder, "vae_decoder", "sample")
    encoders = {role: graph for role, graph in graphs.items() if role.startswith("text_encoder")}
    for role, graph in encoders.items():
        _tensor(graph, role, "input_ids")
        _output(graph, role, "last_hidden_state")
    inputs = unet.facts.inputs
    is_tiny = "encoder_block_out_channels" in decoder.config
    return ModelFacts(
        components=frozenset(graphs),
        denoiser_inputs=frozenset(inputs),
        in_channels=_channels(sample, unet, "in_channels"),
        latent_channels=_channels(latents, decoder, "latent_channels"),
        scale=2 ** (len(_list(decoder, "block_out_channels")) - 1),
        sample_size=_sample_size(unet),
        scaling_factor=_number(
            decoder, "scaling_factor", _TINY_SCALING_FACTOR if is_tiny else _SCALING_FACTOR
        ),
        shift_factor=_number(decoder, "shift_factor", 0.0),
        context_widths={role: _count(graph, "hidden_size") for role, graph in encoders.items()},
        encoder_layers={
            role: _count(graph, "num_hidden_layers") for role, graph in encoders.items()
        },
        guidance_width=_width(inputs, "timestep_cond", unet),
        # Only models that also take a pooled embedding were trained with zeroed ones.
        zero_negative="text_embeds" in inputs
        and index.get("force_zeros_for_empty_prompt", True) is True,
        time_ids_width=_width(inputs, "time_ids", unet),
        defaults=_defaults(index),
    )


def _tensor(graph: GraphWithConfig, role: str, name: str) -> Signature:
    if name not in graph.facts.inputs:
        raise BadBundle(
            f"{graph.path}: the {role} takes {', '.join(graph.facts.inputs) or 'nothing'}, "
            f"not {name!r}: it was made by a tool whose bundles are not read yet",
            hint=_DIALECT,
            code="unknown-dialect",
        )
    return graph.facts.inputs[name]


def _output(graph: GraphWithConfig, role: str, name: str) -> None:
    if name not in graph.facts.outputs:
        raise BadBundle(
            f"{graph.path}: the {role} gives {', '.join(graph.facts.outputs)}, not {name!r}: "
            "it was made by a tool whose bundles are not read yet",
            hint=_DIALECT,
            code="unknown-dialect",
        )


def _bad_config(graph: GraphWithConfig, key: str, value: object) -> BadBundle:
    state = "missing" if value is None else f"{value!r}"
    return BadBundle(
        f"{graph.path.with_name('config.json')}: {key} is {state}", hint=_FIX, code="bad-config"
    )


def _channels(tensor: Signature, graph: GraphWithConfig, key: str) -> int:
    if len(tensor.shape) != 4:
        raise BadBundle(
            f"{graph.path}: {tensor.name!r} has the shape {list(tensor.shape)}, expected "
            "[batch, channels, height, width]",
            hint=_DIALECT,
            code="unknown-dialect",
        )
    channels = tensor.shape[1]
    return channels if isinstance(channels, int) else _count(graph, key)


def _width(inputs: Mapping[str, Signature], name: str, graph: GraphWithConfig) -> int | None:
    if name not in inputs:
        return None
    shape = inputs[name].shape
    if len(shape) == 2 and isinstance(shape[1], int):
        return shape[1]
    raise BadBundle(
        f"{graph.path}: {name!r} has the shape {list(shape)}, expected [batch, a fixed number]",
        hint=_DIALECT,
        code="unknown-dialect",
    )


def _count(graph: GraphWithConfig, key: str) -> int:
    value = graph.config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _bad_config(graph, key, value)
    return value


def _number(graph: GraphWithConfig, key: str, default: float) -> float:
    value = graph.config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad_config(graph, key, value)
    return float(value)


def _list(graph: GraphWithConfig, key: str) -> list[JsonValue]:
    value = graph.config.get(key)
    if not isinstance(value, list) or not value:
        raise _bad_config(graph, key, value)
    return value


def _sample_size(graph: GraphWithConfig) -> tuple[int, int] | None:
    value = graph.config.get("sample_size")
    if value is None:
        return None
    edges = value if isinstance(value, list) else [value, value]
    whole = [e for e in edges if isinstance(e, int) and not isinstance(e, bool) and e > 0]
    if len(whole) != 2 or len(edges) != 2:
        raise _bad_config(graph, "sample_size", value)
    return whole[0], whole[1]


def _defaults(index: JsonObject) -> dict[str, int | float | str]:
    value = index.get(DEFAULTS_KEY, {})
    known: dict[str, tuple[type, ...]] = {
        "num_inference_steps": (int,),
        "guidance_scale": (int, float),
        "sampler": (str,),
    }
    if not isinstance(value, dict) or not all(
        isinstance(item, known.get(name, ())) and not isinstance(item, bool)
        for name, item in value.items()
    ):
        raise BadBundle(
            f"model_index.json: {DEFAULTS_KEY} is {value!r}; it may have {', '.join(known)}",
            hint=_FIX,
            code="bad-model-index",
        )
    return cast("dict[str, int | float | str]", value)
