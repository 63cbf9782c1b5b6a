"""ProgressView: a run's events drawn as live bars in the terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ortist.events import Event, Stage, StageAdvanced, StageDone, StageStarted, StepDone

_TITLES: dict[Stage, str] = {
    "convert": "converting the model",
    "load": "opening the graphs",
    "encode": "reading the prompt",
    "denoise": "drawing",
    "decode": "developing",
}
_WIDEST = 20


class ProgressView:
    """A callback for `on_event` that draws a bar for each stage on standard error.

    Use it as a context manager; a view that is not enabled draws nothing.

    Args:
        enabled: draw.
        pictures: how many pictures the whole run makes; more than one get a bar of their own.
    """

    def __init__(self, *, enabled: bool, pictures: int = 1) -> None:
        self._progress = Progress(
            TextColumn(f"{{task.description:<{_WIDEST}}}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[count]:>9}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=Console(stderr=True),
            disable=not enabled,
            transient=True,
            expand=True,
        )
        self._out = Console(soft_wrap=True, highlight=False, markup=False)
        self._tasks: dict[Stage, TaskID] = {}
        self._pictures = pictures
        self._done = 0
        self._whole: TaskID | None = None

    def __enter__(self) -> ProgressView:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def print(self, line: str) -> None:
        """Write a line to standard output, above the bars where both are on one terminal."""
        if self._progress.disable or not self._out.is_terminal:
            print(line, flush=True)  # noqa: T201  # this is a front
        else:
            self._progress.console.print(line, soft_wrap=True, highlight=False, markup=False)

    def picture_done(self) -> None:
        """Count a picture that is written."""
        self._done += 1
        if self._whole is not None:
            self._progress.update(
                self._whole, completed=self._done, count=f"{self._done}/{self._pictures}"
            )

    def __call__(self, event: Event) -> None:
        """Draw one event."""
        match event:
            case StageStarted(stage, total):
                self._start(stage, total)
            case StageAdvanced(stage, done, total):
                self._move(stage, done, total)
            case StepDone(step, total):
                self._move("denoise", step, total)
            case StageDone(stage):
                task = self._progress.tasks[self._tasks[stage]]
                self._progress.update(task.id, completed=task.total or 1)

    def _start(self, stage: Stage, total: int) -> None:
        if stage == "load" and self._pictures > 1 and self._whole is None:
            self._whole = self._progress.add_task(
                "pictures", total=self._pictures, count=f"0/{self._pictures}"
            )
        if stage in self._tasks:
            self._progress.reset(self._tasks[stage], total=total, count="")
        else:
            self._tasks[stage] = self._progress.add_task(_TITLES[stage], total=total, count="")

    def _move(self, stage: Stage, done: int, total: int) -> None:
        count = f"{100 * done // max(total, 1)} %" if stage == "convert" else f"{done}/{total}"
        self._progress.update(self._tasks[stage], completed=done, total=total, count=count)
