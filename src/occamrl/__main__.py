"""The command ``occamrl``, also as ``python -m occamrl``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is being loaded is one line, as it is later."""
    try:
        from occamrl.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
