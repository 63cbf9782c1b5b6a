"""What a checkpoint is, told from the names and shapes of its tensors alone.

A component counts as known when every tensor of a shipped configuration is there in its shape
and nothing else is, apart from what is known to have no bearing. A near miss is refused: a model
with one layer more would give pictures that are wrong without looking broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ortist.checkpoints.detected import (
    HINT,
    Detected,
    Found,
    Kind,
    Left,
    Prediction,
    usual_prediction,
    with_prediction,
)
from ortist.checkpoints.layouts import Shape
from ortist.checkpoints.matching import match_component
from ortist.checkpoints.shipped import ShippedModel, shipped_models
from ortist.checkpoints.signs import (
    FIRST_CONVOLUTIONS,
    FOREIGN,
    LOOSE,
    MARKERS,
    ODD_CHANNELS,
    PLACES,
    Place,
    first_match,
    left_outside,
)
from ortist.errors import BadCheckpoint

_TEXT_ENCODERS = ("text_encoder", "text_encoder_2")
_METADATA_PREDICTIONS: Mapping[str, Prediction] = {"epsilon": "epsilon", "v": "v_prediction"}


def detect(
    shapes: Mapping[str, Shape], *, metadata: Mapping[str, str] | None = None, source: str = "file"
) -> Detected:
    """Tell what a checkpoint is.

    Args:
        shapes: name and shape of every tensor.
        metadata: the free text of a safetensors header; only what it says of the prediction type
            is used (modelspec.prediction_type, github.com/Stability-AI/ModelSpec).
        source: name of the file for messages.

    Raises:
        BadCheckpoint: it is of no known kind, or like a known one but not the same; the message
            says what was seen.
    """
    names = list(shapes)
    foreign = first_match(FOREIGN, names)
    if foreign is not None:
        raise BadCheckpoint(
            f"{source} is {foreign[0]} (it has {foreign[1]!r}), which is not implemented",
            hint=HINT,
            code="unsupported-model",
        )
    places = _places(shapes, source)
    if all(place.component in _TEXT_ENCODERS for place in places):
        raise _unknown(names, source)

    found: list[Found] = []
    left: Counter[str] = Counter()
    examples: dict[str, str] = {}
    homes = [place.prefix for place in places if place.prefix]
    seen: set[str] = set()
    for place in places:
        start = place.prefix + place.scope
        own = [
            name
            for name in names
            if name.startswith(start)
            and name not in MARKERS
            and (place.prefix or not name.startswith(tuple(homes)))
        ]
        seen.update(own)
        tensors = {name.removeprefix(place.prefix): shapes[name] for name in own}
        configs: tuple[str, ...] = ()
        if place.component != "controlnet":
            _refuse_odd_channels(place, tensors, source)
            configs, unused = match_component(place, tensors, source)
            for name, why in unused.items():
                left[why] += 1
                examples.setdefault(why, place.prefix + name)
        channels, width = _channels(tensors), _context_width(tensors)
        found.append(Found(place.component, place.layout, place.prefix, configs, channels, width))
    for name in names:
        if name not in seen and name not in MARKERS:
            why = left_outside(name)
            left[why] += 1
            examples.setdefault(why, name)

    detected = _combine(found, source)
    detected = _with_told_prediction(detected, shapes, metadata or {})
    summary = tuple(Left(count, examples[why], why) for why, count in left.items())
    return replace(detected, left=summary)


def _places(shapes: Mapping[str, Shape], source: str) -> list[Place]:
    places = [place for place in PLACES if place.prefix + place.sign in shapes]
    # A ControlNet is half a UNet, under the same names.
    control = {place.prefix for place in places if place.component == "controlnet"}
    places = [p for p in places if p.component != "unet" or p.prefix not in control]
    for place in places:
        twins = [
            other.prefix or "no prefix" for other in places if other.component == place.component
        ]
        if len(twins) > 1:
            raise BadCheckpoint(
                f"{source} holds its {place.component} more than once: under {' and '.join(twins)}",
                hint="keep one of them",
                code="component-twice",
            )
    return places


def _channels(tensors: Mapping[str, Shape]) -> int | None:
    shapes = (tensors[name] for name in FIRST_CONVOLUTIONS if name in tensors)
    return next((shape[1] for shape in shapes if len(shape) == 4), None)


def _context_width(tensors: Mapping[str, Shape]) -> int | None:
    shapes = (shape for name, shape in tensors.items() if name.endswith("attn2.to_k.weight"))
    return next((shape[1] for shape in shapes if len(shape) == 2), None)


def _refuse_odd_channels(place: Place, tensors: Mapping[str, Shape], source: str) -> None:
    channels = _channels(tensors)
    odd = None if channels is None else ODD_CHANNELS.get(channels)
    if place.component == "unet" and odd is not None:
        raise BadCheckpoint(
            f"{source}: its UNet takes {channels} channels: it is {odd}, which is not implemented",
            hint=HINT,
            code="unsupported-model",
        )


def _unknown(names: list[str], source: str) -> BadCheckpoint:
    heads = Counter(name.split(".")[0] for name in names)
    listing = ", ".join(f"{head} ({count})" for head, count in heads.most_common(4))
    more = f" and {len(heads) - 4} other beginnings" if len(heads) > 4 else ""
    guess = first_match(LOOSE, names)
    looks = "" if guess is None else f"; it looks like {guess[0]} ({guess[1]!r})"
    seen = f"{len(names)} tensors: {listing}{more}" if names else "no tensors"
    return BadCheckpoint(
        f"{source} is no checkpoint that ortist knows{looks}; it holds {seen}",
        hint=HINT,
        code="unknown-checkpoint",
    )


def _combine(found: list[Found], source: str) -> Detected:
    by_name = {part.component: part for part in found}
    unet, control, vae = by_name.get("unet"), by_name.get("controlnet"), by_name.get("vae")
    models: tuple[str, ...] = ()
    notes: list[str] = []
    if unet is not None:
        models = tuple(m.name for m in shipped_models().values() if m.unet in unet.configs)
        model = shipped_models()[models[0]]
        _check_encoders(found, model, source)
        if vae is not None:
            found = [replace(p, configs=(model.vae,)) if p is vae else p for p in found]
        missing = [name for name in (*model.text_encoders, "vae") if name not in by_name]
        if missing and len(found) > 1:
            notes.append(f"It has no {' and no '.join(missing)}: another file has to give it.")
        if "lcm" not in model.name:
            notes.append(
                "Turbo, Lightning, Hyper and LCM-merged models have the tensors of the model they "
                "were made from: their few steps cannot be told from the file."
            )
    elif vae is not None:
        notes.append(
            "The autoencoders of SD 1.x, 2.x and XL have the same tensors: which one it is, and so "
            "its scaling factor (0.18215 or 0.13025), cannot be told from the file."
        )
    if any(part.component.startswith("tiny") for part in found):
        notes.append("TAESD and TAESDXL have the same tensors: the file cannot tell which it is.")
    main = unet or control or vae or found[0]
    return Detected(
        kind=_kind(found),
        models=models,
        components=tuple(found),
        in_channels=(control or main).in_channels,
        context_width=(control or main).context_width,
        prediction_type=None,
        prediction_told=False,
        zero_terminal_snr=False,
        left=(),
        notes=tuple(notes),
    )


def _kind(found: list[Found]) -> Kind:
    names = {part.component for part in found}
    if "controlnet" in names:
        return "controlnet"
    if "unet" in names:
        return "checkpoint" if len(found) > 1 else "unet"
    return "vae" if "vae" in names else "tiny_vae"


def _check_encoders(found: list[Found], model: ShippedModel, source: str) -> None:
    for part in found:
        if part.component not in _TEXT_ENCODERS:
            continue
        wanted = model.text_encoders.get(part.component)
        if wanted not in part.configs:
            raise BadCheckpoint(
                f"{source}: its UNet is that of {model.title}, whose {part.component} is "
                f"{wanted or 'absent'}, but the file's is {' or '.join(part.configs)}",
                hint="the file was put together from models that do not fit",
                code="mixed-components",
            )


def _with_told_prediction(
    detected: Detected, shapes: Mapping[str, Shape], metadata: Mapping[str, str]
) -> Detected:
    if not detected.models:
        return detected
    notes = list(detected.notes)
    stated = metadata.get("modelspec.prediction_type")
    told = None if stated is None else _METADATA_PREDICTIONS.get(stated.strip().lower())
    if told is not None:
        notes.append(f"Its metadata state the prediction type {stated!r}.")
    elif stated is not None:
        notes.append(f"Its metadata state an unknown prediction type, {stated!r}: not used.")
    if "v_pred" in shapes:
        if told == "epsilon":
            notes.append("Its marker v_pred contradicts its metadata; the marker counts.")
        told = "v_prediction"
        notes.append("Its marker v_pred states v-prediction.")
    zero_snr = "ztsnr" in shapes and told == "v_prediction"
    if zero_snr:
        notes.append("Its marker ztsnr states that its noise levels end in pure noise.")
    elif "ztsnr" in shapes:
        notes.append("Its marker ztsnr is not used: it has no meaning without v-prediction.")

    models = with_prediction(detected.models, told)
    usual = {usual_prediction(name) for name in models}
    customary = usual.pop() if len(usual) == 1 else None
    if told is None and customary is None:
        notes.append(
            "Nothing in it tells epsilon from v-prediction: say which with --prediction-type."
        )
    elif told is None:
        notes.append(f"Nothing in it states the prediction type; {customary} is usual.")
    return replace(
        detected,
        models=models,
        prediction_type=told or customary,
        prediction_told=told is not None,
        zero_terminal_snr=zero_snr,
        notes=tuple(notes),
    )
