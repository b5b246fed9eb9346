"""What comparisons and records of experiments share: rows, tables, LaTeX, data frames and plots.

Every seed is one observation. Intervals are percentile bootstrap intervals of the mean over seeds,
at 95 %.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from occamrl.answers.tables import Row, frame_of, table_of_rows, text_table
from occamrl.answers.tables import shown as shown
from occamrl.intervals import FEWEST as FEWEST
from occamrl.intervals import interval as interval
from occamrl.protocols import Floats
from occamrl.running.result import Result, sum_of_pieces

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

Scale = Literal["linear", "semilogx", "semilogy", "loglog"]
Band = Literal["bootstrap", "quantiles", "seeds"] | None
Width = Literal["column", "page"] | float

_LATEX = str.maketrans(
    {
        **{char: f"\\{char}" for char in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)


class Kept(NamedTuple):
    """What the record of a cell keeps of its run: of a Result, all that tables and curves need."""

    seed: int
    total_episodes: int
    total_regret: float
    total_return: float
    plans: int
    wall_time: float
    episodes: Sequence[int]  # of pieces with the same regret in every episode
    regret: Sequence[float]

    def regret_at(self, episode: Any) -> Any:
        """Return the cumulative regret after ``episode`` episodes, a number or an array of them."""
        return sum_of_pieces(self.episodes, self.regret, episode)


Runs = Mapping[str, Mapping[str, Sequence[Result | Kept]]]  # by problem and agent, one per seed


def interval_text(low: float | None, high: float | None) -> str:
    """Return an interval as text; nothing where there is none."""
    return "" if low is None else f"[{low:,.4g}, {high:,.4g}]"


class Tables(ABC):
    """Runs of several agents, on one problem or more, over seeds."""

    @property
    @abstractmethod
    def runs(self) -> Runs:
        """The runs by problem and agent."""

    @cached_property
    def rows(self) -> list[Row]:
        """A row per problem and agent: mean regret with its interval, median, worst seed and more.

        ``tail`` is the regret per episode in the last tenth of the episodes; plans and seconds are
        means over the runs.
        """
        return [row_of(problem, name, runs) for problem, name, runs in self._groups()]

    def _groups(self) -> Iterator[tuple[str, str, Sequence[Result | Kept]]]:
        """Yield problem, agent and its runs."""
        for problem, agents in self.runs.items():
            for name, runs in agents.items():
                yield problem, name, runs

    @cached_property
    def table(self) -> pa.Table:
        """A row per run, with problem, agent, seed, episodes, regret, return, plans and seconds."""
        rows: list[Row] = []
        for problem, name, runs in self._groups():
            rows += [
                {
                    "problem": problem,
                    "agent": name,
                    "seed": run.seed,
                    "episodes": run.total_episodes,
                    "regret": run.total_regret,
                    "realised_return": run.total_return,
                    "plans": run.plans,
                    "seconds": run.wall_time,
                }
                for run in runs
            ]
        return table_of_rows(rows)

    def to_pandas(self) -> Any:
        """Return :attr:`table` as a data frame of pandas."""
        return frame_of(self.table)

    def to_latex(self) -> str:
        """Return the mean regret of every agent as a LaTeX table, for the package booktabs."""
        lines = [r"\begin{tabular}{lrrr}", r"\toprule"]
        header = ["agent", "regret", r"95\,\% interval", "worst seed"]
        if len(self.runs) > 1:
            lines[0] = r"\begin{tabular}{llrrr}"
            header.insert(0, "problem")
        lines.append(" & ".join(header) + r" \\")
        last_problem = None
        for row in self.rows:
            first = row["problem"] != last_problem
            last_problem = row["problem"]
            if first:
                lines.append(r"\midrule")
            ends = interval_text(row["low"], row["high"])
            cells = [row["agent"], shown(row["regret"]), ends, shown(row["worst"])]
            # The name of a problem stands beside its first agent only.
            if len(self.runs) > 1:
                cells.insert(0, row["problem"] if first else "")
            lines.append(" & ".join(cell.translate(_LATEX) for cell in cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def regret_at(self, episode: int) -> dict[str, Any]:
        """Return the exact cumulative regret after so many episodes: one number per seed.

        By problem and agent.
        """
        regret: dict[str, dict[str, Floats]] = {problem: {} for problem in self.runs}
        for problem, name, runs in self._groups():
            regret[problem][name] = np.array([run.regret_at(episode) for run in runs])
        return regret

    def plot(
        self,
        axes: Axes | None = None,
        *,
        scale: Scale = "linear",
        band: Band = "bootstrap",
        width: Width = "column",
        problem: str | None = None,
        **style: Any,
    ) -> Axes:
        """Draw the mean cumulative regret of every agent.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            A new figure of ``width`` by default, whose ``savefig`` embeds fonts:
            ``plot().figure.savefig("x.pdf")``.
        scale : "linear" | "semilogx" | "semilogy" | "loglog"
            Logarithmic regret is linear near zero, so that agents without regret are shown; these
            have (0) in their names.
        band : "bootstrap" | "quantiles" | "seeds" | None
            Around the mean: its 95 % interval, the 10 % and 90 % quantiles of the seeds (both from
            three seeds on), a thin line per seed, or nothing.
        width : "column" | "page" | float
            3.3 or 6.9 inches, or how many.
        problem : str, optional
            Which one, if there are several.
        **style
            Passed on to Matplotlib's ``plot``, such as ``markersize=2``.
        """
        figures: Any = importlib.import_module("occamrl.report.figures")
        drawn: Axes = figures.plot(
            self.runs, axes, scale=scale, band=band, width=width, problem=problem, **style
        )
        return drawn

    def _text(self) -> str:
        """Return the rows as text."""
        rows = []
        for row in self.rows:
            cells = {
                "agent": row["agent"],
                "regret": row["regret"],
                "95% interval": interval_text(row["low"], row["high"]),
                "worst seed": row["worst"],
                "regret per episode, last 10 %": row["tail"],
                "seconds per run": row["seconds"],
            }
            if len(self.runs) > 1:
                cells = {"problem": row["problem"], **cells}
            rows.append(cells)
        return text_table(rows)


def row_of(problem: str, name: str, runs: Sequence[Result | Kept]) -> Row:
    """Return the row of an agent on a problem."""
    totals = [run.total_regret for run in runs]
    low, high = interval(totals) or (None, None)
    tails = []
    for run in runs:
        last = max(1, run.total_episodes // 10)
        tails.append((run.total_regret - run.regret_at(run.total_episodes - last)) / last)
    return {
        "problem": problem,
        "agent": name,
        "seeds": len(runs),
        "episodes": runs[0].total_episodes,
        "regret": float(np.mean(totals)),
        "low": low,
        "high": high,
        "median": float(np.median(totals)),
        "worst": float(max(totals)),
        "tail": float(np.mean(tails)),
        "plans": float(np.mean([run.plans for run in runs])),
        "seconds": float(np.mean([run.wall_time for run in runs])),
    }
