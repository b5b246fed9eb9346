"""Studies: what the pages show, measured by named commands; no part of the package."""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(
        _name, "1"
    )  # before NumPy is loaded: studies run in several processes, a thread each
