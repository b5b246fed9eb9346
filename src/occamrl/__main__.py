"""The command ``occamrl``, also as ``python -m occamrl``."""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False  # nothing else is imported before Ctrl-C is heard
if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Run the command line; Ctrl-C while it is being loaded is one line, as it is later."""
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    try:
        from occamrl.cli import main as command

        command()
    except BaseException as error:  # an interrupted import can end in an error of another kind
        if isinstance(error, SystemExit) or not (interrupted or isinstance(error, KeyboardInterrupt)):
            raise
        sys.stderr.write("stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
