"""`python -m ortist`, and what the `ortist` script runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it in good order even while it is still being loaded."""
    try:
        from ortist.front.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
