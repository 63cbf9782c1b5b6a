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
from ortist.errors import BadRequest, Cancelled, OrtistError, OutputFailed

if TYPE_CHECKING:
    from ortist.plan import Note
    from ortist.record import Record

_EXIT_INTERRUPTED = 130
_EXIT_BUG = 70

# What the fields of a request are called on the command line.
_FLAGS = {
    "num_images_per_prompt": "--count",
    "num_inference_steps": "--steps",
    "guidance_scale": "--guidance",
    "timestep_spacing": "--spacing",
    "negative_prompt": "--negative",
}

app = typer.Typer(
    name="ortist",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ortist {ortist.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
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
    """Stable Diffusion on ONNX Runtime: ortist generate "a red circle on a white background"."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


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
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the files that --out names.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of text.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the Python traceback of an error.")
    ] = False,
) -> None:
    """Draw PROMPT and write PNG files that carry all their settings.

    Each picture is written as soon as it is finished.
    """
    width, height = _parse_size(size)
    from dataclasses import replace

    from ortist.front.outputs import choose_outputs
    from ortist.front.progress import ProgressView
    from ortist.pipeline import Pipeline
    from ortist.request import Request

    request = Request(
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
    )
    outputs = choose_outputs(out, prompt, count, overwrite=force)
    written: list[tuple[Path, Record]] = []
    with ProgressView(enabled=sys.stderr.isatty(), pictures=count) as view:
        pipe = Pipeline.open(model, provider=provider, dtype=dtype, on_event=view)
        for index, own_seed in enumerate(pipe.plan(request).seeds):
            single = replace(request, seed=own_seed, num_images_per_prompt=1)
            result = pipe.run(single, on_event=view)
            outputs.make_folder()
            path = outputs.path(index, own_seed)
            result.save(path, overwrite=force)
            written.append((path, result.record))
            view.picture_done()
            if not as_json:
                view.print(f"{path}  seed {own_seed}")
    if as_json:
        images = [
            {"path": str(path), "seed": record.seeds[0], "record": json.loads(record.to_json())}
            for path, record in written
        ]
        typer.echo(json.dumps({"images": images}))
    _tell_notes(written[0][1].notes)
    if not as_json:
        typer.echo(_summary([record for _, record in written]), err=True)


def _parse_size(size: str | None) -> tuple[int | None, int | None]:
    if size is None:
        return None, None
    parts = size.lower().split("x")
    if len(parts) == 2 and all(part.strip().isdecimal() for part in parts):
        return int(parts[0]), int(parts[1])
    raise BadRequest(
        f"--size {size!r} is not WIDTHxHEIGHT", hint="write it like 512x768", code="bad-size"
    )


def _tell_notes(notes: tuple[Note, ...]) -> None:
    for note in notes:
        if note.is_warning:
            typer.echo(f"note: {_FLAGS.get(note.field, note.field)}: {note.text}", err=True)


def _summary(records: list[Record]) -> str:
    record = records[0]
    seconds = sum(sum(each.seconds.values()) for each in records)
    steps = record.num_inference_steps
    levels = "" if record.levels == "uniform" else f" {record.levels.capitalize()}"
    return (
        f"{steps} step{'' if steps == 1 else 's'} of {record.sampler}{levels}, guidance "
        f"{record.guidance_scale:g}, {record.width}x{record.height}, "
        f"{seconds:.1f} s on {record.provenance.provider}"
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
    except OSError as error:
        if error.filename is not None:
            lost = OutputFailed(
                f"{error.filename}: {error.strerror or error}",
                hint="check the path, its length and that you may read and write there",
                code="os-error",
            )
        else:
            lost = OutputFailed(
                f"the operating system refused: {error.strerror or error}",
                hint="check the folder you are in and where the output goes",
                code="os-error",
            )
        _show(lost, debug=debug)
        return lost.exit_code
    except Exception as error:
        usage = _usage_error(error)
        if usage is None:
            return _show_bug(error, debug=debug)
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


def _show_bug(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    told = OrtistError(
        f"{type(error).__name__}: {error}",
        hint="this is a fault of ortist; run again with --debug and report the trace",
    )
    _show(told, debug=False)
    return _EXIT_BUG


def _show(error: OrtistError, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    typer.echo(f"error: {_with_flags(error.message)}", err=True)
    if error.hint:
        typer.echo(f"hint: {_with_flags(error.hint)}", err=True)


def _with_flags(text: str) -> str:
    """A message of the library in the words of the command line."""
    for field, flag in _FLAGS.items():
        text = text.replace(field, flag)
    return text
