"""The answer of `detect`: what a checkpoint is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ortist.checkpoints.layouts import KeyMap, Move
from ortist.checkpoints.matching import candidates
from ortist.checkpoints.shipped import ShippedModel, shipped_config, shipped_models
from ortist.checkpoints.signs import ComponentName, Layout
from ortist.errors import BadCheckpoint
from ortist.files import JsonObject

Kind = Literal["checkpoint", "unet", "vae", "tiny_vae", "controlnet"]
Prediction = Literal["epsilon", "v_prediction"]

HINT = (
    "ortist converts Stable Diffusion 1.x, 2.x and XL and what has their shape: whole checkpoints, "
    "UNets, autoencoders, ControlNets"
)


@dataclass(frozen=True)
class Found:
    """One component of a checkpoint.

    Attributes:
        component: what it is.
        layout: how its tensors are named.
        prefix: what stands before every name.
        configs: names of the shipped configurations it fits (`shipped_config`); several where
            they have the same tensors, none for a ControlNet.
        in_channels: channels of the first convolution; None for text encoders.
        context_width: width of the text that it attends to; None without.
    """

    component: ComponentName
    layout: Layout
    prefix: str
    configs: tuple[str, ...]
    in_channels: int | None
    context_width: int | None

    def key_map(self) -> KeyMap:
        """Its tensors in both layouts.

        Raises:
            BadCheckpoint: it is a ControlNet, for which there is no map yet.
        """
        for candidate in candidates(self.component, self.layout):
            if candidate.config in self.configs:
                return candidate.keys
        raise BadCheckpoint(f"there is no key map of a {self.component} yet", hint=HINT)

    def moves(self) -> dict[str, Move] | None:
        """How to make its tensors under diffusers' names; None if it has those already."""
        return None if self.layout == "diffusers" else self.key_map().to_diffusers()


@dataclass(frozen=True)
class Left:
    """Tensors that are not used: how many, the first one's name, and why."""

    count: int
    example: str
    why: str


@dataclass(frozen=True)
class Detected:
    """What a checkpoint is.

    Attributes:
        kind: "checkpoint" has a UNet and more; the others are components on their own. A
            ControlNet that carries its base model counts as "controlnet".
        models: names of the shipped models whose UNet this is; several where names and shapes
            cannot tell them apart, none without a UNet.
        components: what was found, in the order of `signs.PLACES`.
        in_channels: of the UNet, the ControlNet or else the autoencoder.
        context_width: width of the text; None for autoencoders.
        prediction_type: what the UNet puts out; None where it cannot be told.
        prediction_told: whether the file says so; otherwise `prediction_type` is what models of
            this kind usually have.
        zero_terminal_snr: whether the file says that its noise levels end in pure noise.
        left: tensors that are not used.
        notes: one sentence for each thing worth knowing, with its reason.
    """

    kind: Kind
    models: tuple[str, ...]
    components: tuple[Found, ...]
    in_channels: int | None
    context_width: int | None
    prediction_type: Prediction | None
    prediction_told: bool
    zero_terminal_snr: bool
    left: tuple[Left, ...]
    notes: tuple[str, ...]

    @property
    def family(self) -> str | None:
        """The models' common family; None without a UNet."""
        families = {shipped_models()[name].family for name in self.models}
        return families.pop() if families else None

    def model(self, prediction_type: Prediction | None = None) -> ShippedModel:
        """The one model that this is.

        Args:
            prediction_type: what the caller knows it to be; None leaves it to the file.

        Raises:
            BadCheckpoint: there is no UNet, or only the prediction type could tell which of
                several models this is.
        """
        if not self.models:
            raise BadCheckpoint("the file holds no UNet", hint=HINT, code="no-unet")
        wanted = prediction_type or self.prediction_type
        fitting = with_prediction(self.models, wanted)
        name, *others = fitting
        if others:
            titles = " or ".join(shipped_models()[each].title for each in fitting)
            raise BadCheckpoint(
                f"the file may be {titles}: they have the same tensors",
                hint="say what the model predicts: --prediction-type epsilon or v_prediction",
                code="prediction-unknown",
            )
        return shipped_models()[name]

    def scheduler_config(self, prediction_type: Prediction | None = None) -> JsonObject:
        """scheduler_config.json; model_index.json has to name its class.

        Args:
            prediction_type: as for `model`; it outranks the file.

        Raises:
            BadCheckpoint: as for `model`.
        """
        model = self.model(prediction_type)
        config = shipped_config("scheduler", model.scheduler)
        prediction = prediction_type or self.prediction_type
        if self.zero_terminal_snr and prediction == "v_prediction":
            if model.scheduler == "sd":  # diffusers' PNDM knows no such noise levels
                config = shipped_config("scheduler", "sd-v")
            # Lin et al. 2023, arXiv:2305.08891: such a model has to start at the last level.
            config |= {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
        if prediction is not None:
            config["prediction_type"] = prediction
        return config


def with_prediction(models: tuple[str, ...], wanted: Prediction | None) -> tuple[str, ...]:
    """The models that predict `wanted`; all if none does, or nothing is wanted."""
    fitting = tuple(name for name in models if usual_prediction(name) == wanted)
    return fitting or models


def usual_prediction(model: str) -> Prediction:
    """What a shipped model predicts unless told otherwise."""
    config = shipped_config("scheduler", shipped_models()[model].scheduler)
    return "v_prediction" if config["prediction_type"] == "v_prediction" else "epsilon"
