"""Kills conversions, and lets them race. Run by test_kill.py in a process of its own.

It forks, which is safe only without threads: nothing here starts any. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ortist.bundle import atomic, write
from ortist.bundle.cache import cached_bundle
from ortist.bundle.read import Bundle
from ortist.bundle.write import convert
from ortist.errors import BadBundle, OrtistError
from ortist.events import Event, StageAdvanced, StageStarted


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_share(share: float) -> Callable[[Event], None]:
    """Die when that share of the bytes is written."""

    def on_event(event: Event) -> None:
        if isinstance(event, StageStarted) and share == 0:
            die()
        if isinstance(event, StageAdvanced) and event.done >= share * event.total:
            die()

    return on_event


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; its exit status, negative for a signal."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 99
        try:
            work()
            status = 0
        except OrtistError as error:
            sys.stderr.write(f"{error.code}: {error.message}\n")
            status = error.exit_code
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def before(name: str, count: int) -> Callable[[], None]:
    """Die before the `count`th call of a function of `atomic`, in this process."""

    def patch() -> None:
        original = getattr(atomic, name)
        calls = 0

        def counted(*arguments: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls == count:
                die()
            return original(*arguments, **named)

        setattr(atomic, name, counted)

    return patch


def before_rename(count: int) -> Callable[[], None]:
    """Die before the `count`th rename of a path."""

    def patch() -> None:
        original = Path.rename
        calls = 0

        def counted(self: Path, target: Path) -> Path:
            nonlocal calls
            calls += 1
            if calls == count:
                die()
            return original(self, target)

        Path.rename = counted  # type: ignore[method-assign]

    return patch


def nothing() -> None:
    pass


def is_whole(out: Path) -> bool:
    try:
        Bundle.open(out)
    except BadBundle:
        return False
    return True


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def killed(source: Path, home: Path) -> dict[str, object]:
    """Kill conversions into one place at many points, then let one finish there."""
    home.mkdir()
    points: dict[str, tuple[Callable[[], None], Callable[[Event], None]]] = {
        f"at {share}": (nothing, at_share(share)) for share in (0.0, 0.001, 0.5, 1.0)
    }
    points |= {
        "when flushing": (before("force_to_disk", 3), write.ignore_event),
        "before the rename": (before_rename(1), write.ignore_event),
    }
    report: dict[str, object] = {}
    for point, (patch, on_event) in points.items():

        def attempt(patch: Callable[[], None], on_event: Callable[[Event], None]) -> None:
            patch()
            convert(source, home / "out", on_event=on_event)

        status = in_child(lambda: attempt(patch, on_event))  # noqa: B023
        report[point] = {"status": status, "left": [n.split(".", 3)[-1] for n in names(home)]}
    convert(source, home / "out")
    return {"points": report, "whole": is_whole(home / "out"), "names": names(home)}


def replaced(source: Path, root: Path) -> dict[str, object]:
    """Kill a conversion that replaces a bundle, between its two renames and before them."""
    report: dict[str, object] = {}
    for count in (1, 2):
        home = root / f"rename-{count}"
        home.mkdir()
        convert(source, home / "out")
        (home / "out" / "mark").write_text("the old one")

        def attempt(count: int, out: Path) -> None:
            before_rename(count)()
            convert(source, out, replace=True)

        status = in_child(lambda: attempt(count, home / "out"))  # noqa: B023
        in_child(lambda: atomic.remove_leftovers(home))  # noqa: B023
        report[str(count)] = {
            "status": status,
            "old is back": (home / "out" / "mark").exists() and is_whole(home / "out"),
            "names": names(home),
        }
    return report


def race(source: Path, root: Path) -> dict[str, object]:
    """Several processes want the same bundle at once: in one place, and from the cache."""
    root.mkdir()
    os.environ["ORTIST_CACHE"] = str(root / "cache")
    tally = root / "conversions"

    def count(event: Event) -> None:
        if isinstance(event, StageStarted):
            with tally.open("a") as file:
                file.write("x")

    def at_once(work: Callable[[], object]) -> list[int]:
        ready, start = os.pipe()
        children: list[int] = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                status = 99
                try:
                    os.close(start)
                    os.read(ready, 1)  # returns at once everywhere when the parent closes it
                    work()
                    status = 0
                except OrtistError as error:
                    sys.stderr.write(f"{error.code}: {error.message}\n")
                finally:
                    os._exit(status)
            children.append(child)
        os.close(ready)
        os.close(start)
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]

    convert_statuses = at_once(lambda: convert(source, root / "out"))
    cache_statuses = at_once(lambda: cached_bundle(source, on_event=count))
    return {
        "convert": convert_statuses,
        "cache": cache_statuses,
        "conversions for the cache": len(tally.read_text()),
        "whole": is_whole(root / "out") and is_whole(cached_bundle(source).path),
        "names": names(root),
        "partials": [path.name for path in root.rglob("*ortist-partial*")],
    }


def limited(source: Path, root: Path) -> dict[str, object]:
    """The system refuses to write more than a few kilobytes to a file."""
    root.mkdir()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        convert(source, root / "out")

    return {"status": in_child(work), "names": names(root)}


def main() -> None:
    source, root = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    report = {
        "killed": killed(source, root / "killed"),
        "replaced": replaced(source, root),
        "race": race(source, root / "race"),
        "limited": limited(source, root / "limited"),
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
