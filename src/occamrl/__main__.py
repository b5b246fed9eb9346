"""The command ``occamrl``, also as ``python -m occamrl``."""

from __future__ import annotations

import gc
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
    gc.set_threshold(1_000_000)  # a command may read as many objects, and hardly any are garbage
    try:
        from occamrl.cli import main as command

        command()
    except BaseException as error:  # an interrupted import can end in an error of another kind
        if isinstance(error, SystemExit):  # of Ctrl-C before a command is called, Typer only tells the code
            told = not isinstance(getattr(error.__context__, "__cause__", None), KeyboardInterrupt)
        else:
            told = not (interrupted or isinstance(error, KeyboardInterrupt))
        if told:
            raise
        sys.stderr.write("stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
