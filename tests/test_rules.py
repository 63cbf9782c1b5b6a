"""The rules of the house that a machine can hold."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ortist

SOURCE = Path(ortist.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py"))

# From the ground up: a layer imports only from layers above it in this list. A name stands for
# the module or the whole package.
LAYERS = [
    "errors",
    "files",
    "events",
    "graphs",
    "checkpoints",
    "models",
    "bundle",
    "sampling",
    "prompt",
    "providers",
    "runtime",
    "families",
    "request",
    "plan",
    "encode",
    "denoise",
    "decode",
    "record",
    "source",
    "pipeline",
    "front",
]
# Knowledge that points against the stream for a reason.
ALLOWED = {
    ("bundle", "families"),  # a bundle's facts are stated in the terms of families
}


def imports_of(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, node


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "ortist" and len(parts) > 1 else None


def own_layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_layer_is_listed() -> None:
    found = {own_layer(path) for path in MODULES} - {"__init__", "__main__"}
    assert found == set(LAYERS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    own = own_layer(path)
    if own in ("__init__", "__main__"):
        return
    for module, node in imports_of(path):
        layer = layer_of(module)
        if layer is None or layer == own or (own, layer) in ALLOWED:
            continue
        assert LAYERS.index(layer) < LAYERS.index(own), f"line {node.lineno}: {own} uses {layer}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_oracle_is_no_part_and_the_runtime_has_one_door(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = {module.split(".")[0] for module, _ in imports_of(path)}
    assert not names & {"torch", "diffusers", "transformers", "optimum"}
    if path.relative_to(SOURCE).as_posix() != "runtime/session.py":
        assert "onnxruntime" not in names
        assert 'import_module("onnxruntime")' not in text


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_keyword_tunnels_no_catch_alls_no_asserts_for_input(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            assert node.args.kwarg is None, f"line {node.lineno}: **kwargs in {node.name}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: bare except"
        assert not isinstance(node, ast.Assert), f"line {node.lineno}: assert"


def test_importing_ortist_loads_neither_onnx_nor_the_runtime() -> None:
    code = (
        "import sys, ortist; ortist.OrtistError; "
        "print([m for m in ('onnx', 'onnx_ir', 'onnxruntime', 'numpy', 'PIL') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_help_loads_no_heavy_module() -> None:
    code = (
        "import sys; from ortist.front.cli import run; run(['--help']); "
        "print([m for m in ('onnx', 'onnx_ir', 'onnxruntime') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip().endswith("[]")


def test_every_public_name_exists() -> None:
    assert all(getattr(ortist, name) is not None for name in ortist.__all__)
    with pytest.raises(AttributeError):
        _ = ortist.nonsense  # pyright: ignore
