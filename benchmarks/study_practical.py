"""The practical problems, measured: which class is found, after how long, and what that is worth in the field's unit.

    PYTHONPATH=. python benchmarks/study_practical.py [--seeds 10] [--out DIR] [--figures docs/figures] [problem ...]

Regret is exact; every seed is met by all agents alike. What is finished is kept in DIR, one file per truth; the same
command goes on from there. Ctrl-C loses the truth in hand only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

import occamrl as orl
from benchmarks.study_ladders import Kept, play
from occamrl.problems.lakes import PatchyIce
from occamrl.problems.mdp import RewardMap
from occamrl.problems.operations import LostSales, MachineReplacement, Pricing, QueueAdmission, WeekdayInventory
from occamrl.report.figures import COLOURS, STYLES
from occamrl.running.result import dress
from occamrl.selectors.references import largest, oracle, smallest

SELECTED, SAFE, LARGEST, SMALLEST = "ARL-GEN", "ARL-GEN, safe", "largest class", "smallest class"


@dataclass(frozen=True)
class Case:
    """A practical problem with its truths, one per class or as many as are instructive."""

    truths: dict[str, Any]
    episodes: int
    matters: float  # what a preflight counts as much to lose per episode, in the unit
    unit_name: str = ""  # of problems that do not bring a unit

    def unit_of(self, problem: Any) -> tuple[RewardMap, str]:
        """Return the unit in which the problem keeps its accounts, and its name."""
        return (RewardMap(), self.unit_name) if self.unit_name else (problem.unit, problem.unit_name)


def _named(kind: Any, episodes: int, matters: float, **more: Any) -> Case:
    return Case({**dict(zip(kind.rung_names, kind.truths(), strict=True)), **more}, episodes, matters)


def _cases() -> dict[str, Callable[[], Case]]:
    ice = {
        "one slip": PatchyIce(slip=(0.1,)),
        "halves": PatchyIce(slip=(0.1, 0.0)),
        "strips": PatchyIce(slip=(0.0, 0.1, 0.1, 1.0 / 3.0)),
    }
    return {
        "lost-sales": lambda: _named(LostSales, 2**12 - 2, 5.0),
        "lost-sales-free-orders": lambda: Case(
            {
                problem.demand: problem
                for problem in (
                    LostSales(demand=d, fixed=0.0, holding=1.0, order_step=1) for d in ("poisson", "negative-binomial")
                )
            },
            2**11 - 2,
            5.0,
        ),
        "weekday-inventory": lambda: _named(WeekdayInventory, 2**10 - 2, 5.0),
        "queue-admission": lambda: _named(QueueAdmission, 2**11 - 2, 3.0),
        "machine-replacement": lambda: _named(
            MachineReplacement,
            2**10 - 2,
            300.0,
            **{"slow wear": MachineReplacement(hazard=(0.05,) * 4 + (0.1,) * 2 + (0.2,) * 9)},
        ),
        "pricing": lambda: Case({"falling": Pricing()}, 2**10 - 2, 0.1),
        "patchy-ice": lambda: Case(ice, 2**11 - 2, 0.01, "crossings"),
    }


def measure(problem: Any, case: Case, seeds: int) -> dict[str, Any]:
    """Return what one truth gave, as plain data."""
    ladder, mdp, episodes = orl.Ladder.of_problem(problem), problem.mdp, case.episodes
    unit, name = case.unit_of(problem)
    m = ladder.class_of(mdp)
    if m is None:
        raise SystemExit("the truth is in no class of its ladder")
    start = int(np.flatnonzero(mdp.initial_distribution)[0])
    much = case.matters / unit.scale
    report = orl.preflight(ladder, mdp.known, episodes=episodes, start=start, least_loss=much)
    agents = {
        SELECTED: orl.ARLGen(ladder=ladder),
        SAFE: orl.ARLGen(ladder=ladder, safe=True),
        "oracle": oracle(ladder, m),
        LARGEST: largest(ladder),
        SMALLEST: smallest(ladder),
    }
    runs = play(agents, problem, episodes, seeds)
    at = np.unique(np.round(np.geomspace(1, episodes, 200)).astype(int)) - 1
    return {
        "sizes": ladder.sizes,
        "class": m,
        "episodes": episodes,
        "unit": name,
        "optimum": unit.total(mdp.optimal_value, mdp.horizon),
        "preflight": str(report),
        "advice": SAFE if report.safe else SELECTED,
        "at": (at + 1).tolist(),
        "runs": {name: [_kept(result, unit, at) for result in results] for name, results in runs.items()},
    }


def _kept(result: Kept, unit: RewardMap, at: Any) -> dict[str, Any]:
    columns = result.phases.column_names
    last = {name: result.phases[name].to_pylist()[-1] for name in ("chosen", "since") if name in columns}
    return {"lost": [float(x) * unit.scale for x in np.asarray(result.cumulative_regret)[at]], **last}


def show(title: str, found: dict[str, Any]) -> None:
    """Print one truth."""
    print(f"  {title}: class {found['class']} of {found['sizes']}, K = {found['episodes']:,}", end="; ")
    print(f"the optimum is {found['optimum']:,.1f} {found['unit']} an episode; advice: {found['advice']}")
    for name, runs in found["runs"].items():
        lost = [run["lost"][-1] for run in runs]
        text = f"    {name:<16}lost {np.mean(lost):>13,.1f} (worst {max(lost):>13,.1f}) {found['unit']}"
        if "chosen" in runs[0]:
            right = [run["since"] for run in runs if run["chosen"] == found["class"]]
            when = f"since {np.median(right):.0f} (median), {max(right)} (latest)" if right else ""
            text += f"; class {found['class']} at the end in {len(right)} of {len(runs)} {when}"
            others = sorted({run["chosen"] for run in runs} - {found["class"]})
            text += f"; else {others}" if others else ""
        print(text, flush=True)


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw what was lost over episodes, one panel per truth; mean and range of the seeds.

    The axis ends a little above the dearest agent other than the smallest class, which may leave the picture.
    """
    columns = min(2, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(5.6 * columns, 3.8 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    for axes, (title, each) in zip(panels, found.items(), strict=False):
        dress(axes, f"truth: {title.lstrip('+ ')}")
        top = 0.0
        for i, (name, runs) in enumerate(each["runs"].items()):
            lost = np.array([run["lost"] for run in runs])
            look: dict[str, Any] = {"color": COLOURS[i], "linestyle": STYLES[i]}
            label = f"{name} (advised)" if name == each["advice"] else name
            axes.plot(each["at"], lost.mean(axis=0), label=label, **look)
            axes.fill_between(each["at"], lost.min(axis=0), lost.max(axis=0), color=COLOURS[i], alpha=0.12, linewidth=0)
            if name != SMALLEST:
                top = max(top, float(lost[:, -1].max()))
        axes.set_xscale("log")
        axes.set_ylim(0.0, 1.15 * top)
        axes.set_ylabel(f"lost so far, {each['unit']}")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if top > 10.0 else "{x:.3g}"))
        axes.legend(frameon=False, fontsize="small", loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    print(f"  figure: {path}")


def study(name: str, case: Case, seeds: int, out: Path, figures: Path | None) -> None:
    """Measure, print and draw one problem."""
    print(f"\n{name}", flush=True)
    found = {}
    for i, (title, problem) in enumerate(case.truths.items(), start=1):
        path = out / f"{name}-{i}-{problem.mdp.fingerprint[:12]}-{case.episodes}-{seeds}.json"
        if not path.exists():
            measured = measure(problem, case, seeds)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(measured))
            part.replace(path)
        found[title] = json.loads(path.read_text())
        if i == 1:
            print(found[title]["preflight"])
        show(title, found[title])
    if figures is not None:
        draw(found, figures / f"practical-{name}.png")


def main(arguments: Sequence[str] | None = None) -> None:
    """Study the problems named, or all."""
    cases = _cases()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", choices=[*cases, []])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out/study-practical"))
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args(arguments)
    for name in options.problems or cases:
        study(name, cases[name](), options.seeds, options.out, options.figures)


if __name__ == "__main__":
    main()
