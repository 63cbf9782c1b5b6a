"""What the README and the pages say is so."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import typer.main

from ortist.errors import OrtistError
from ortist.front import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    lines = "".join(blocks(text, "console")).splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


def ortist_commands() -> list[str]:
    found: list[str] = []
    for command in commands(README):
        found += [part.strip() for part in command.split("&&") if part.strip().startswith("ortist")]
    return found


def test_there_are_exactly_two_set_up_commands_and_ci_runs_both() -> None:
    set_up = [command for command in commands(README) if command.startswith("pip install")]
    assert set_up == [
        'pip install ".[cpu]" && ortist generate "a large red circle on a white background"',
        'pip install ".[cpu,test]" && pytest',
    ]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'pip install --quiet ".[cpu]"' in ci
    assert 'ortist generate "a large red circle on a white background"' in ci
    assert 'pip install --quiet ".[cpu,test]"' in ci


@pytest.mark.parametrize("command", ortist_commands())
def test_every_command_of_the_readme_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(shlex.split(command)[1:]) == 0
    assert list(tmp_path.rglob("*.png"))


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(README, "python"):
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "triangle.png").is_file()


def test_the_page_of_a_command_has_all_its_options_and_no_others() -> None:
    group = typer.main.get_command(cli.app)
    for name, command in group.commands.items():  # pyright: ignore
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        real = {option for p in command.params for option in p.opts if option.startswith("--")}
        said = set(re.findall(r"^\| `(--[a-z-]+)`", page, flags=re.MULTILINE))
        assert said == real, name


def test_the_page_of_errors_has_every_class_with_its_exit_code() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    said = {
        name: int(code)
        for code, name in re.findall(r"^\| (\d+) \| `(\w+)`", page, flags=re.MULTILINE)
    }
    assert said == {kind.__name__: kind.exit_code for kind in OrtistError.__subclasses__()}


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_the_benchmarks_page_is_what_the_figures_say() -> None:
    spec = importlib.util.spec_from_file_location("render", ROOT / "benchmarks" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)
    assert render.PAGE.read_text(encoding="utf-8") == render.page(), "run benchmarks/render.py"
