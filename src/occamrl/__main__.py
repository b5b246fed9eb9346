"""The command ``occamrl``, also as ``python -m occamrl``."""

from occamrl.cli import app as main

if __name__ == "__main__":
    main()
