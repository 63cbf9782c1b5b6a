"""What a newcomer waits for: the README's main job in a fresh virtual environment.

    python benchmarks/default_command.py --out benchmarks/results/default_command.json

Installs the checkout into a new environment, then measures its size, the import of ortist, the
first picture (nothing converted yet) and later ones, interleaved. Wall time depends on what else
the machine does; processor time hardly.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROMPT = "a large red circle on a white background"
MEGABYTE = 1e6


@dataclass(frozen=True)
class Runs:
    """Seconds of several runs of one command, in the order they were made."""

    wall: list[float]
    processor: list[float]

    def summary(self) -> dict[str, object]:
        """The runs with their medians."""
        return {
            **asdict(self),
            "wall_median": round(statistics.median(self.wall), 3),
            "processor_median": round(statistics.median(self.processor), 3),
        }


def timed(command: list[str], environment: Mapping[str, str], folder: Path) -> tuple[float, float]:
    """Run a command; wall and processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, env=dict(environment), cwd=folder, check=True, capture_output=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(wall, 3), round(spent, 3)


def size_of(folder: Path) -> float:
    """Megabytes (10**6 bytes) of all files below `folder`, links not followed."""
    total = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    return round(total / MEGABYTE, 1)


def measure(rounds: int) -> dict[str, object]:
    """Install, run and measure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = folder / "environment"
        venv.create(environment, with_pip=True)
        python = str(environment / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", f"{ROOT}[cpu]"]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
        listed = subprocess.run(
            [python, "-m", "pip", "list", "--format=json"],
            check=True,
            capture_output=True,
            text=True,
        )
        packages = {item["name"].lower(): item["version"] for item in json.loads(listed.stdout)}
        first, later, imports, bare = (Runs([], []) for _ in range(4))
        for index in range(rounds):
            variables = {**os.environ, "ORTIST_CACHE": str(folder / f"cache{index}")}
            command = [str(environment / "bin" / "ortist"), "generate", PROMPT]
            for runs, line in (
                (first, command),
                (later, command),
                (imports, [python, "-c", "import ortist"]),
                (bare, [python, "-c", "pass"]),
            ):
                wall, processor = timed(line, variables, folder)
                runs.wall.append(wall)
                runs.processor.append(processor)
        return {
            "command": f'ortist generate "{PROMPT}"',
            "installed_megabytes": size_of(environment),
            "has_torch": "torch" in packages,
            "packages": packages,
            "first_picture": first.summary(),
            "later_pictures": later.summary(),
            "import_ortist": imports.summary(),
            "python_alone": bare.summary(),
            "cores": os.cpu_count(),
            "load_average_before_and_after": [round(os.getloadavg()[0], 2)],
            "python": sys.version.split()[0],
        }


def main() -> None:
    """Measure and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    figures = measure(options.rounds)
    figures["load_average_before_and_after"] = [load, round(os.getloadavg()[0], 2)]
    options.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
