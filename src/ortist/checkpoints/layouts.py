"""Tensor names of the two layouts that checkpoints come in, tied to each other as data.

The *single-file* layout is that of the original latent diffusion code (Rombach et al. 2022,
arXiv:2112.10752): one numbered list of blocks per half of the UNet, OpenCLIP's or OpenAI CLIP's
own text encoder. The *diffusers* layout groups the same tensors by resolution level. A `KeyMap`
says for one component which tensor is which, one `Tie` a tensor; the modules `layouts_unet`,
`layouts_vae` and `layouts_text` derive it from the component's configuration, so that a model
with fewer blocks needs no list of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Form = Literal["same", "stacked", "pointwise", "transposed"]
"""How the single-file tensor relates to the diffusers tensor or tensors: "same"; "stacked": query,
key and value on top of each other along axis 0; "pointwise": a 1x1 convolution [out, in, 1, 1] for
a matrix [out, in]; "transposed": a matrix [in, out] for a matrix [out, in]."""

Change = Literal["keep", "first", "second", "third", "stack", "flatten", "unflatten", "transpose"]
"""What makes the target of a `Move` of its sources: the tensor itself; one third of it along axis
0; all of them stacked along axis 0; [out, in, 1, 1] to [out, in] and back; the other way round."""

Shape = tuple[int, ...]

_THIRDS: tuple[Change, ...] = ("first", "second", "third")


@dataclass(frozen=True)
class Tie:
    """One tensor of the single-file layout and its counterpart.

    Attributes:
        single: its name in the single-file layout, without the component's prefix.
        diffusers: its name in diffusers' layout; three names when `form` is "stacked".
        shape: shape in diffusers' layout, of each.
        form: how the two relate.
    """

    single: str
    diffusers: tuple[str, ...]
    shape: Shape
    form: Form = "same"

    @property
    def single_shape(self) -> Shape:
        """Shape in the single-file layout."""
        match self.form:
            case "same":
                return self.shape
            case "stacked":
                return (len(self.diffusers) * self.shape[0], *self.shape[1:])
            case "pointwise":
                return (*self.shape, 1, 1)
            case "transposed":
                return self.shape[::-1]


@dataclass(frozen=True)
class Move:
    """How to make one tensor of a layout from the other layout.

    Attributes:
        target: name of the tensor to make.
        sources: names of what it is made from: one, or query, key and value in this order.
        change: what to do to them.
        shape: shape of the result.
    """

    target: str
    sources: tuple[str, ...]
    change: Change
    shape: Shape


@dataclass(frozen=True)
class KeyMap:
    """Every tensor of one component in both layouts.

    Attributes:
        ties: one for each tensor of the single-file layout.
    """

    ties: tuple[Tie, ...]

    def single_shapes(self) -> dict[str, Shape]:
        """Names and shapes in the single-file layout."""
        return {tie.single: tie.single_shape for tie in self.ties}

    def diffusers_shapes(self) -> dict[str, Shape]:
        """Names and shapes in diffusers' layout."""
        return {name: tie.shape for tie in self.ties for name in tie.diffusers}

    def to_diffusers(self) -> dict[str, Move]:
        """Every diffusers tensor by name, made from the single-file layout."""
        moves = [move for tie in self.ties for move in _to_diffusers(tie)]
        return {move.target: move for move in moves}

    def to_single(self) -> dict[str, Move]:
        """Every single-file tensor by name, made from diffusers' layout."""
        return {tie.single: _to_single(tie) for tie in self.ties}


_TO_DIFFUSERS: Mapping[Form, Change] = {
    "same": "keep",
    "pointwise": "flatten",
    "transposed": "transpose",
}
_TO_SINGLE: Mapping[Form, Change] = {
    "same": "keep",
    "stacked": "stack",
    "pointwise": "unflatten",
    "transposed": "transpose",
}


def _to_diffusers(tie: Tie) -> list[Move]:
    if tie.form == "stacked":
        return [
            Move(name, (tie.single,), third, tie.shape)
            for name, third in zip(tie.diffusers, _THIRDS, strict=True)
        ]
    (name,) = tie.diffusers
    return [Move(name, (tie.single,), _TO_DIFFUSERS[tie.form], tie.shape)]


def _to_single(tie: Tie) -> Move:
    return Move(tie.single, tie.diffusers, _TO_SINGLE[tie.form], tie.single_shape)


class TieList:
    """Collects ties module by module; names are given without ".weight" and ".bias"."""

    def __init__(self) -> None:
        self._ties: list[Tie] = []

    def finish(self) -> KeyMap:
        """The map of everything collected."""
        return KeyMap(tuple(self._ties))

    def tensor(self, single: str, diffusers: str, shape: Shape, form: Form = "same") -> None:
        """One tensor, under its full names."""
        self._ties.append(Tie(single, (diffusers,), shape, form))

    def stacked(self, single: str, diffusers: tuple[str, str, str], shape: Shape) -> None:
        """Query, key and value, under their full names, each of `shape`."""
        self._ties.append(Tie(single, diffusers, shape, "stacked"))

    def norm(self, single: str, diffusers: str, channels: int) -> None:
        """A normalisation with scale and offset."""
        self.tensor(f"{single}.weight", f"{diffusers}.weight", (channels,))
        self.tensor(f"{single}.bias", f"{diffusers}.bias", (channels,))

    def linear(
        self,
        single: str,
        diffusers: str,
        out: int,
        given: int,
        *,
        bias: bool = True,
        form: Form = "same",
    ) -> None:
        """A linear map from `given` to `out` features."""
        self.tensor(f"{single}.weight", f"{diffusers}.weight", (out, given), form)
        if bias:
            self.tensor(f"{single}.bias", f"{diffusers}.bias", (out,))

    def conv(
        self,
        single: str,
        diffusers: str,
        out: int,
        given: int,
        *,
        kernel: int = 3,
        bias: bool = True,
    ) -> None:
        """A convolution from `given` to `out` channels."""
        shape = (out, given, kernel, kernel)
        self.tensor(f"{single}.weight", f"{diffusers}.weight", shape)
        if bias:
            self.tensor(f"{single}.bias", f"{diffusers}.bias", (out,))
