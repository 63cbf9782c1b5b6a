"""ProgressView: a run's events drawn as live bars in the terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ortist.events import Event, Stage, StageAdvanced, StageDone, StageStarted, StepDone

_TITLES: dict[Stage, str] = {
    "convert": "converting the checkpoint",
    "load": "opening the graphs",
    "encode": "reading the prompt",
    "denoise": "drawing",
    "decode": "developing",
}


class ProgressView:
    """A callback for `on_event` that draws one bar per stage on standard error.

    Use it as a context manager; a view that is not enabled draws nothing.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<26}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
            console=Console(stderr=True),
            disable=not enabled,
            transient=True,
        )
        self._tasks: dict[Stage, TaskID] = {}

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

    def __call__(self, event: Event) -> None:
        """Draw one event."""
        match event:
            case StageStarted(stage, total):
                self._tasks[stage] = self._progress.add_task(_TITLES[stage], total=total, detail="")
            case StageAdvanced(stage, done, total, detail):
                self._progress.update(
                    self._tasks[stage], completed=done, total=total, detail=detail
                )
            case StepDone(step, total):
                self._progress.update(self._tasks["denoise"], completed=step, total=total)
            case StageDone(stage):
                task = self._tasks[stage]
                self._progress.update(task, completed=self._progress.tasks[task].total or 1)
