"""How often a bootstrap interval of the report covers the mean. For docs/report.md (:mod:`benchmarks.figures`)."""

from __future__ import annotations

import numpy as np

from benchmarks.figures import Size, table
from occamrl.report.data import bands


def coverage(size: Size) -> str:
    """Measure the intervals of samples from a normal distribution, by the number of seeds."""
    shares = {}
    for seeds in (3, 5, 10, 20):
        values = np.random.default_rng(seeds).normal(size=(size.episodes(4_000), seeds))
        ends = bands(values, np.mean, "coverage")
        if ends is not None:
            shares[str(seeds)] = f"{((ends[0] <= 0.0) & (ends[1] >= 0.0)).mean():.0%}"
    return table(("seeds; 4,000 samples", *shares), [("the nominal 95% interval covers the mean in", *shares.values())])
