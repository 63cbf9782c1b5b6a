from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ortist.bundle import atomic, locks
from ortist.bundle.atomic import new_directory, remove_leftovers, require_space
from ortist.bundle.locks import FileLock
from ortist.errors import OutputFailed


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def make(target: Path, text: str, *, replace: bool = False) -> None:
    with new_directory(target, replace=replace) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text(text)


def test_it_appears_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "out"
    with new_directory(target) as folder:
        (folder / "file").write_text("text")
        assert not target.exists()
        assert folder.parent == target.parent  # a rename across disks would not be atomic
    assert (target / "file").read_text() == "text"
    assert names(target.parent) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), new_directory(tmp_path / "out") as folder:
        (folder / "file").write_text("text")
        raise error
    assert names(tmp_path) == []


def test_an_empty_directory_is_taken_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    make(tmp_path / "out", "first")
    with pytest.raises(OutputFailed) as caught:
        make(tmp_path / "out", "second")
    assert caught.value.code == "output-exists"
    assert (tmp_path / "out/sub/file").read_text() == "first"
    assert names(tmp_path) == ["out"]


def test_a_file_in_the_way_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious")
    with pytest.raises(OutputFailed):
        make(tmp_path / "out", "new", replace=True)
    assert (tmp_path / "out").read_text() == "precious"


def test_replacing(tmp_path: Path) -> None:
    make(tmp_path / "out", "first")
    (tmp_path / "out" / "more").write_text("more")
    make(tmp_path / "out", "second", replace=True)
    assert (tmp_path / "out/sub/file").read_text() == "second"
    assert names(tmp_path / "out") == ["sub"]
    assert names(tmp_path) == ["out"]


def test_one_who_comes_second_does_not_overwrite(tmp_path: Path) -> None:
    with pytest.raises(OutputFailed) as caught, new_directory(tmp_path / "out") as folder:
        (folder / "file").write_text("second")
        make(tmp_path / "out", "first")
    assert caught.value.code == "output-exists"
    assert (tmp_path / "out/sub/file").read_text() == "first"
    assert names(tmp_path) == ["out"]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputFailed) as caught:
        make(tmp_path / "file" / "out", "text")
    assert caught.value.hint


def test_a_write_that_fails_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputFailed, match="No space left"), new_directory(tmp_path / "out"):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == []


def test_too_small_a_disk_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 5_000_000

    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda _place: Usage)
    require_space(tmp_path / "not" / "yet" / "there", 5_000_000)
    with pytest.raises(OutputFailed, match="takes 5,000 MB, but the disk has 5 MB free"):
        require_space(tmp_path / "out", 5_000_000_000)


def test_leftovers_of_the_dead_go_and_work_of_the_living_stays(tmp_path: Path) -> None:
    dead = tmp_path / ".out.0a0a0a0a.ortist-partial"
    dead.mkdir()
    (dead / "file").touch()
    unrelated = tmp_path / ".out.partial"
    unrelated.mkdir()
    with new_directory(tmp_path / "living") as folder:
        remove_leftovers(tmp_path)
        assert not dead.exists()
        assert folder.exists()
    assert names(tmp_path) == [".out.partial", "living"]


def test_a_directory_whose_replacement_died_is_put_back(tmp_path: Path) -> None:
    old = tmp_path / ".out.0a0a0a0a.ortist-old"
    old.mkdir()
    (old / "file").write_text("kept")
    remove_leftovers(tmp_path)
    assert (tmp_path / "out/file").read_text() == "kept"
    old.mkdir()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["out"]


def test_one_lock_at_a_time(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    first.close()
    assert second.try_acquire()
    second.remove()
    assert names(tmp_path) == []


def test_the_lock_of_a_removed_file_protects_nothing(tmp_path: Path) -> None:
    late = FileLock(tmp_path / "lock")
    early = FileLock(tmp_path / "lock")
    assert early.try_acquire()
    early.remove()
    assert not late.try_acquire()
    late.close()


def test_a_file_system_without_locks_is_told_and_left_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(_descriptor: int) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "_try_lock", unsupported)
    with (
        pytest.raises(OutputFailed, match="No locks available") as caught,
        new_directory(tmp_path / "out"),
    ):
        pass
    assert "ORTIST_CACHE" in caught.value.hint
    assert names(tmp_path) == []
