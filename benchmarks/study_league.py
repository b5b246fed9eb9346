"""The league tables of docs/arena.md (:mod:`benchmarks.figures`): the shipped arenas, played and told.

Records are kept in ``out/``: a study that was stopped goes on, and one that is finished is only told again.
"""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

import occamrl as orl
from benchmarks.figures import Size, table
from occamrl.experiments.spec import read_source
from occamrl.report.data import build
from occamrl.report.league import cells, listed


def league_of(name: str, size: Size) -> str:
    """Return the league table of a shipped arena; a tiny one has an agent and two rules."""
    _, content = read_source(f"arena-{name}")
    spec: dict[str, Any] = tomllib.loads(content.decode())
    head = f"K = {spec['episodes']:,}, seeds {listed(spec['seeds'])}"
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "arena.toml", Path("out") / f"arena-{name}"
        if size.tiny:
            spec |= {
                "episodes": size.episodes(spec["episodes"]),
                "seeds": [100],
                "tuning_seeds": [0, 1],
                "baseline": "",
            }
            first, arena = spec["agent"][0], spec["agent"][-1]
            arena["sweep"]["rule"] = arena["sweep"]["rule"][:2]
            spec["agent"], out = [first, arena], Path(folder) / "out"
        file.write_bytes(tomli_w.dumps(spec).encode() if size.tiny else content)
        found = cells(build(orl.Experiment.from_toml(file).run(out, progress=False))["league"][0])
    rows = [[value for key, value in row.items() if key != "us"] for row in found]  # times are those of a machine
    return table((head, *(key for key in found[0] if key not in ("", "us"))), rows)


def ice(size: Size) -> str:
    """Play patchy ice."""
    return league_of("ice", size)


def ladder(size: Size) -> str:
    """Play the sparse ladder."""
    return league_of("ladder", size)


def mixture(size: Size) -> str:
    """Play the sparse mixture."""
    return league_of("mixture", size)


def pricing(size: Size) -> str:
    """Play pricing."""
    return league_of("pricing", size)


def misspecified(size: Size) -> str:
    """Play ice that no class describes."""
    return league_of("misspecified", size)


def riverswim(size: Size) -> str:
    """Play RiverSwim."""
    return league_of("riverswim", size)
