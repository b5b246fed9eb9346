"""What a record says about where it was made: versions, processor, linear algebra."""

from __future__ import annotations

import platform
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

_PACKAGES = ("numpy", "numba", "scipy", "pyarrow")

BLAS_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def one_thread() -> dict[str, str]:
    """Return the environment that keeps linear algebra to one thread; it is read when the libraries are loaded."""
    return dict.fromkeys(BLAS_THREADS, "1")


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    found = {"occamrl": str(sys.modules["occamrl"].__version__), "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in _PACKAGES}


@lru_cache(maxsize=1)
def machine() -> dict[str, str]:
    """Return processor, BLAS and platform."""
    return {"cpu": _cpu(), "blas": _blas(), "platform": platform.platform()}


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _blas() -> str:
    configuration: Any = np.show_config(mode="dicts")
    blas = configuration.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
