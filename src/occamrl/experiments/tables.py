"""What comparisons and records of experiments share: rows, tables, LaTeX, data frames, regret after K episodes, plots.

Every seed is one observation. Intervals are percentile bootstrap intervals of the mean over seeds,
at 95 %.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from occamrl.addresses import generator
from occamrl.running.result import Result, frame_of, sum_of_pieces, table_of_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

Scale = Literal["linear", "semilogx", "semilogy", "loglog"]
Band = Literal["bootstrap", "quantiles", "seeds"] | None
Width = Literal["column", "page"] | float

FEWEST = 3  # seeds for an interval: two numbers do not tell how a third would fall
_RESAMPLES = 4_000
_MOST_ROWS = 20  # of a printed table: it fits a screen
_LATEX = str.maketrans({char: f"\\{char}" for char in "&%$#_{}"} | {"~": r"\textasciitilde{}"})
_LATEX |= str.maketrans({"^": r"\textasciicircum{}", "\\": r"\textbackslash{}"})


class Kept(NamedTuple):
    """What the record of a cell keeps of its run; of a :class:`Result` all that tables and curves need."""

    seed: int
    total_episodes: int
    total_regret: float
    total_return: float
    plans: int
    wall_time: float
    episodes: Sequence[int]  # of pieces with the same regret in every episode
    regret: Sequence[float]

    def regret_at(self, episode: Any) -> Any:
        """Return the cumulative regret after ``episode`` episodes, a number or an array of numbers up to K."""
        return sum_of_pieces(self.episodes, self.regret, episode)


Runs = Mapping[str, Mapping[str, Sequence[Result | Kept]]]  # by problem and agent, one per seed


def interval(values: Any) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of a mean, the same for the same numbers; None for fewer than three."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.size < FEWEST:
        return None
    drawn = generator(0, "bootstrap").integers(numbers.size, size=(_RESAMPLES, numbers.size))
    low, high = np.quantile(numbers[drawn].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def ends_of(row: dict[str, Any]) -> str:
    """Return the interval of a row as text; nothing where there is none."""
    return "" if row["low"] is None else f"[{row['low']:,.4g}, {row['high']:,.4g}]"


class Tables(ABC):
    """Runs of several agents, on one problem or more, over seeds."""

    @property
    @abstractmethod
    def runs(self) -> Runs:
        """The runs by problem and agent."""

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """A row per problem and agent: mean regret with its interval, median, worst seed, last tenth, plans, seconds.

        ``tail`` is the regret per episode in the last tenth of the episodes; plans and seconds are
        means over the runs.
        """
        return [
            about(problem, name, runs)
            for problem, agents in self.runs.items()
            for name, runs in agents.items()
        ]

    @cached_property
    def table(self) -> pa.Table:
        """A row per run: problem, agent, seed, episodes, regret, realised_return, plans, seconds."""
        rows = []
        for problem, agents in self.runs.items():
            for name, runs in agents.items():
                for run in runs:
                    row = {
                        "problem": problem,
                        "agent": name,
                        "seed": run.seed,
                        "episodes": run.total_episodes,
                    }
                    row |= {"regret": run.total_regret, "realised_return": run.total_return}
                    rows.append(row | {"plans": run.plans, "seconds": run.wall_time})
        return table_of_rows(rows)

    def to_pandas(self) -> Any:
        """Return :attr:`table` as a data frame of pandas."""
        return frame_of(self.table)

    def to_latex(self) -> str:
        """Return the mean regret of every agent as a LaTeX table, which needs the package booktabs."""
        several, lines, last = len(self.runs) > 1, list[str](), None
        for row in self.rows:
            lines += [r"\midrule"] if row["problem"] != last else []
            names = (
                [row["agent"]]
                if not several
                else ["" if row["problem"] == last else row["problem"], row["agent"]]
            )
            values = [shown(row["regret"]), ends_of(row), shown(row["worst"])]
            lines.append(
                " & ".join(str(each).translate(_LATEX) for each in [*names, *values]) + r" \\"
            )
            last = row["problem"]
        head = " & ".join(
            [*["problem"] * several, "agent", "regret", r"95\,\% interval", "worst seed"]
        )
        begin = rf"\begin{{tabular}}{{{'l' * (1 + several)}rrr}}"
        return "\n".join(
            [begin, r"\toprule", head + r" \\", *lines, r"\bottomrule", r"\end{tabular}"]
        )

    def regret_at(self, episode: int) -> dict[str, Any]:
        """Return the exact cumulative regret after so many episodes, by problem and agent: one number per seed."""
        return {
            problem: {
                name: np.array([run.regret_at(episode) for run in runs])
                for name, runs in agents.items()
            }
            for problem, agents in self.runs.items()
        }

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
        several, rows = len(self.runs) > 1, []
        for row in self.rows:
            named = {"problem": row["problem"]} if several else {}
            named |= {"agent": row["agent"], "regret": row["regret"], "95% interval": ends_of(row)}
            named |= {"worst seed": row["worst"], "regret per episode, last 10 %": row["tail"]}
            rows.append(named | {"seconds per run": row["seconds"]})
        return text_table(rows)


def about(problem: str, name: str, runs: Sequence[Result | Kept]) -> dict[str, Any]:
    """Return the row of an agent."""
    totals = [run.total_regret for run in runs]
    low, high = interval(totals) or (None, None)
    last = [max(1, run.total_episodes // 10) for run in runs]
    tail = [
        (r.total_regret - r.regret_at(r.total_episodes - n)) / n
        for r, n in zip(runs, last, strict=True)
    ]
    row = {
        "problem": problem,
        "agent": name,
        "seeds": len(runs),
        "episodes": runs[0].total_episodes,
    }
    row |= {
        "regret": float(np.mean(totals)),
        "low": low,
        "high": high,
        "median": float(np.median(totals)),
    }
    row |= {
        "worst": float(max(totals)),
        "tail": float(np.mean(tail)),
        "plans": float(np.mean([r.plans for r in runs])),
    }
    return row | {"seconds": float(np.mean([run.wall_time for run in runs]))}


def shown(value: Any) -> str:
    """Return a value of a table as text."""
    if isinstance(value, float):
        return (
            "impossible"
            if math.isinf(value)
            else f"{value:,.0f}"
            if abs(value) >= 1e4
            else f"{value:,.4g}"
        )
    return f"{value:,}" if type(value) is int else "" if value is None else str(value)


def text_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as text in columns that fit a screen; of many rows the first."""
    columns = []
    for name in rows[0]:
        column = [name, *(shown(row[name])[:40] for row in rows[:_MOST_ROWS])]
        numeric, width = isinstance(rows[0][name], (int, float)), max(map(len, column))
        columns.append([each.rjust(width) if numeric else each.ljust(width) for each in column])
    lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
    more = [f"... and {len(rows) - _MOST_ROWS:,} more rows"] if len(rows) > _MOST_ROWS else []
    return "\n".join(lines + more)
