"""The `ortist` command."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Abort

import ortist
from ortist.errors import BadRequest, Cancelled, OrtistError
from ortist.front.outputs import choose_outputs

if TYPE_CHECKING:
    from ortist.pipeline import Result

_EXIT_INTERRUPTED = 130
_EXIT_BUG = 70

app = typer.Typer(
    name="ortist",
    help="Stable Diffusion on ONNX Runtime.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ortist {ortist.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the Python traceback of an error.")
    ] = False,
) -> None:
    """Stable Diffusion on ONNX Runtime."""


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="What to draw; may be empty.")],
    model: Annotated[
        str,
        typer.Option(help="An embedded model's name, an ONNX bundle, or a checkpoint directory."),
    ] = "shapes",
    negative: Annotated[
        str | None, typer.Option("--negative", help="What to steer away from.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Sampler steps.")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="Guidance scale; 1 turns guidance off.")
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help='Sampler, e.g. "DPM++ 2M Karras", "euler", "DDIM".')
    ] = None,
    spacing: Annotated[
        str | None, typer.Option(help="Time steps: leading, trailing or linspace.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the first picture; picture i takes seed + i.")
    ] = None,
    size: Annotated[str | None, typer.Option(metavar="WxH", help="Size in pixels.")] = None,
    count: Annotated[int, typer.Option(help="How many pictures.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="A PNG file, or a folder (made if missing). Default: a new name here."),
    ] = None,
    provider: Annotated[str, typer.Option(help="Execution provider.")] = "auto",
    dtype: Annotated[
        str | None, typer.Option(help="Precision of the graphs: fp32 or fp16.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the Python traceback of an error.")
    ] = False,
) -> None:
    """Draw PROMPT and write PNG files that carry all their settings."""
    width, height = _parse_size(size)
    outputs = choose_outputs(out, prompt, count, overwrite=force)
    from ortist.front.progress import ProgressView
    from ortist.pipeline import Pipeline
    from ortist.record import save_png

    with ProgressView(enabled=not as_json and sys.stderr.isatty()) as view:
        pipe = Pipeline.open(model, provider=provider, dtype=dtype, on_event=view)
        result = pipe(
            prompt,
            negative_prompt=negative,
            num_inference_steps=steps,
            guidance_scale=guidance,
            sampler=sampler,
            timestep_spacing=spacing,
            seed=seed,
            width=width,
            height=height,
            num_images_per_prompt=count,
            on_event=view,
        )
    outputs.make_folder()
    paths: list[Path] = []
    for index, image in enumerate(result.images):
        path = outputs.path(index, result.record.seeds[index])
        save_png(image, path, result.record, index, overwrite=force)
        paths.append(path)
    _report(result, paths, as_json=as_json)


def _parse_size(size: str | None) -> tuple[int | None, int | None]:
    if size is None:
        return None, None
    parts = size.lower().split("x")
    if len(parts) == 2 and all(part.strip().isdecimal() for part in parts):
        return int(parts[0]), int(parts[1])
    raise BadRequest(
        f"--size {size!r} is not WIDTHxHEIGHT", hint="write it like 512x768", code="bad-size"
    )


def _report(result: Result, paths: list[Path], *, as_json: bool) -> None:
    record = result.record
    if as_json:
        images = [
            {"path": str(path), "seed": seed}
            for path, seed in zip(paths, record.seeds, strict=True)
        ]
        typer.echo(json.dumps({"images": images, "record": json.loads(record.to_json())}))
        return
    for path, seed in zip(paths, record.seeds, strict=True):
        typer.echo(f"{path}  seed {seed}")
    for note in record.notes:
        if note.is_warning:
            typer.echo(f"note: {note.field}: {note.text}", err=True)
    seconds = record.seconds
    typer.echo(
        f"{record.num_inference_steps} steps of {record.sampler}, guidance "
        f"{record.guidance_scale:g}, {record.width}x{record.height}, "
        f"{sum(seconds.values()):.1f} s on {record.provenance.provider}",
        err=True,
    )


def main() -> None:
    """Entry point: run the command and turn every outcome into an exit code (docs/errors.md)."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line `arguments` and return the exit code."""
    debug = "--debug" in arguments
    try:
        code = app(arguments, prog_name="ortist", standalone_mode=False)
    except OrtistError as error:
        _show(error, debug=debug)
        return error.exit_code
    except (KeyboardInterrupt, Abort):
        code = _EXIT_INTERRUPTED
    except Exception as error:
        usage = _usage_error(error)
        if usage is None:
            usage = OrtistError(
                f"{type(error).__name__}: {error}",
                hint="this is a fault of ortist; run again with --debug and report the trace",
            )
            _show(usage, debug=False)
            if debug:
                traceback.print_exc()
            return _EXIT_BUG
        _show(usage, debug=debug)
        return usage.exit_code
    if code == _EXIT_INTERRUPTED:  # typer turns Ctrl-C into this code without a word
        _show(Cancelled("interrupted", hint="nothing half-written is left"), debug=debug)
    return code if isinstance(code, int) else 0


def _usage_error(error: Exception) -> BadRequest | None:
    """A wrong option or argument, told like every other error; None for anything else."""
    # The parser's own classes have moved between typer's versions; their method has not.
    message: object = getattr(error, "format_message", None)
    if not callable(message):
        return None
    command = getattr(getattr(error, "ctx", None), "command_path", "ortist")
    return BadRequest(f"{message()}", hint=f"{command} --help lists the options", code="usage")


def _show(error: OrtistError, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    typer.echo(f"error: {error.message}", err=True)
    if error.hint:
        typer.echo(f"hint: {error.hint}", err=True)
