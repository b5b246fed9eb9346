"""The command ``occamrl``, also as ``python -m occamrl``."""

import os
import signal
import sys

INTERRUPTED = 130


def stop(number: int, frame: object) -> None:
    """End at once, with one line: nothing has begun yet, or all is done."""
    os.write(2, b"stopped\n")
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line; Ctrl-C while it is still loading ends it as quietly as later."""
    signal.signal(signal.SIGINT, stop)
    from occamrl.cli import app

    try:
        app()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            sys.stdout.flush()
            # Python would end itself by the signal if that came during an import.
            os._exit(INTERRUPTED)
        raise


if __name__ == "__main__":
    main()
