"""Where pictures go: file names chosen before the work starts, so that a bad one fails at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ortist.errors import BadRequest, OutputFailed
from ortist.record import check_writable

_SLUG_LENGTH = 48


@dataclass(frozen=True)
class Outputs:
    """The files of one run.

    Attributes:
        folder: where they go.
        stem, suffix: file name without number; ".png" as the user spells it.
        named: the user chose the name; else a free one is made from prompt and seed.
        count: how many pictures.
    """

    folder: Path
    stem: str
    named: bool
    count: int
    suffix: str = ".png"

    def make_folder(self) -> None:
        """Make the folder if it is not there.

        Raises:
            OutputFailed: it cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputFailed(
                f"cannot make the folder {self.folder}: {error.strerror or error}",
                hint="choose another --out",
                code="cannot-write",
            ) from error

    def path(self, index: int, seed: int) -> Path:
        """The file of picture `index`, made with `seed`."""
        if self.named:
            number = f"-{index + 1}" if self.count > 1 else ""
            return self.folder / f"{self.stem}{number}{self.suffix}"
        return _free(self.folder, f"{self.stem}-{seed}")


def choose_outputs(out: Path | None, prompt: str, count: int, *, overwrite: bool) -> Outputs:
    """Decide the files of `count` pictures.

    Args:
        out: a file name ending in .png, a folder (any other name; made when the pictures are
            there if it does not exist), or None for this folder.
        overwrite: existing files may be replaced.

    Raises:
        BadRequest: the file name has the suffix of another format.
        OutputFailed: a file exists already, or its folder cannot be written to.
    """
    place = Path() if out is None else _home(out)
    if place.is_dir() or not place.suffix:
        nearest = place
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        if not nearest.is_dir():
            raise _not_a_folder(nearest)
        check_writable(nearest / "picture-to-be.png", overwrite=True)
        return Outputs(place, _slug(prompt), named=False, count=count)
    if place.suffix.lower() != ".png":
        raise BadRequest(
            f"--out {out} is neither a PNG file nor a folder",
            hint=f"pictures are written as PNG: --out {place.with_suffix('.png')}",
            code="bad-output-name",
        )
    if place.parent.exists() and not place.parent.is_dir():
        raise _not_a_folder(place.parent)
    outputs = Outputs(place.parent, place.stem, named=True, count=count, suffix=place.suffix)
    for index in range(max(count, 1)):
        check_writable(outputs.path(index, 0), overwrite=overwrite)
    return outputs


def _home(out: Path) -> Path:
    try:
        return out.expanduser()
    except RuntimeError as error:
        raise BadRequest(
            f"--out {out}: there is no such home folder",
            hint="write the folder's whole path",
            code="bad-output-name",
        ) from error


def _not_a_folder(out: Path) -> OutputFailed:
    return OutputFailed(
        f"{out} is a file, not a folder",
        hint="give --out a folder, or a file name ending in .png",
        code="not-a-folder",
    )


def _slug(prompt: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", prompt.lower()).strip("-")
    if len(slug) > _SLUG_LENGTH:  # whole words only, but for a single endless one
        cut = slug[: _SLUG_LENGTH + 1]
        slug = cut.rpartition("-")[0] or cut[:_SLUG_LENGTH]
    return slug or "picture"


def _free(folder: Path, stem: str) -> Path:
    candidate = folder / f"{stem}.png"
    for number in range(2, 10_000):
        if not candidate.exists():
            return candidate
        candidate = folder / f"{stem}-{number}.png"
    raise OutputFailed(
        f"{folder} holds thousands of pictures called {stem}",
        hint="name the file yourself with --out",
        code="exists",
    )
