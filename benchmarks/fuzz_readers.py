"""Damages small checkpoints at random and reads them, for as many minutes as asked.

    python benchmarks/fuzz_readers.py --minutes 10 --out fuzz-crashers

A reader may give tensors or raise `BadCheckpoint`. Whatever makes it raise anything else is saved
under --out with the traceback beside it, and the exit status is 1. Needs the repository's tests/.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ortist.checkpoints.pickle_file import PickleFile  # noqa: E402
from ortist.checkpoints.safetensors_file import SafetensorsFile  # noqa: E402
from ortist.errors import BadCheckpoint  # noqa: E402
from tests.tiny.torch_file import Parts, write_older, write_zip  # noqa: E402

Reader = type[SafetensorsFile] | type[PickleFile]


def seeds(folder: Path) -> list[tuple[str, Reader, bytes]]:
    """One sound file of each format."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    parts = Parts()
    state = {"a": parts.tensor(values), "b": parts.tensor(values, (3, 2), (1, 3))}
    saved = {"epoch": 3, "state_dict": state, "notes": [1.5, None, ("x", b"y")]}
    save_file({"a": values, "b": values.T.copy()}, folder / "seed.safetensors")
    write_zip(folder / "zip.pt", saved, parts)
    write_older(folder / "older.pt", saved, parts)
    return [
        ("safetensors", SafetensorsFile, (folder / "seed.safetensors").read_bytes()),
        ("zip", PickleFile, (folder / "zip.pt").read_bytes()),
        ("older", PickleFile, (folder / "older.pt").read_bytes()),
    ]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few changed, removed, repeated or cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(out) + 1)
        length = rng.randint(1, 12)
        match rng.randrange(6):
            case 0 | 1 if at < len(out):
                out[at] = rng.choice([rng.randrange(256), 0, 255, out[at] ^ 1 << rng.randrange(8)])
            case 2:
                del out[at : at + length]
            case 3:
                out[at:at] = rng.randbytes(length)
            case 4:
                out[at:at] = data[at : at + length]
            case _ if rng.random() < 0.1:
                del out[at:]
            case _:
                pass
    return bytes(out)


def main() -> int:
    """Fuzz; 1 when something crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--out", type=Path, default=Path("fuzz-crashers"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    end = time.monotonic() + 60 * options.minutes
    counts = {"read": 0, "refused": 0, "crashed": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = seeds(folder)
        while time.monotonic() < end:
            kind, reader, data = rng.choice(files)
            path = folder / "damaged"
            path.write_bytes(content := damaged(data, rng))
            try:
                file = reader(path)
                for key in file.keys():  # noqa: SIM118
                    file.load(key)
                file.close()
                counts["read"] += 1
            except BadCheckpoint:
                counts["refused"] += 1
            except Exception:
                counts["crashed"] += 1
                options.out.mkdir(parents=True, exist_ok=True)
                saved = options.out / f"{kind}-{options.seed}-{counts['crashed']}"
                saved.write_bytes(content)
                saved.with_name(f"{saved.name}.txt").write_text(traceback.format_exc())
    print(counts)
    return 1 if counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
