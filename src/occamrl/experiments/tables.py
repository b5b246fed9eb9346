"""What comparisons and records of experiments share: rows, tables, LaTeX, data frames and plots.

Every seed is one observation. Intervals are percentile bootstrap intervals of the mean over seeds,
at 95 %.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from occamrl.answers.tables import Row, frame_of, table_of_rows, text_table
from occamrl.errors import ParameterError, require_integer
from occamrl.experiments.pair_tests import Method, PairTests, pair_tests
from occamrl.intervals import interval
from occamrl.naming import printable_name
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
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)


def latex_text(name: object) -> str:
    """Return a name as LaTeX prints it."""
    return printable_name(name).translate(_LATEX)


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


def interval_text(low: float | None, high: float | None, digits: int = 4) -> str:
    """Return an interval as text; nothing where there is none."""
    if low is None or high is None:
        return ""
    return f"[{figure(low, digits)}, {figure(high, digits)}]"


class Differences(list[Row]):
    """Rows of paired differences. Print them, or take ``to_pandas()`` or ``to_latex()``."""

    def to_pandas(self) -> Any:
        """Return the rows as a data frame of pandas."""
        return frame_of(table_of_rows(list(self)))

    def to_latex(self, digits: int = 4) -> str:
        """Return the rows as a LaTeX table, for the package booktabs."""
        lines = []
        for row in self:
            ends = interval_text(row["low"], row["high"], digits)
            name = f"{latex_text(row['agent'])} - {latex_text(row['baseline'])}"
            lines.append([name, str(row["seeds"]), figure(row["mean"], digits), ends])
        header = ["agents", "seeds", "difference", r"95\,\% interval"]
        return latex_table("lrrr", header, [lines])

    def __str__(self) -> str:
        shown_rows = []
        for row in self:
            cells = {
                "agents": f"{row['agent']} - {row['baseline']}",
                "seeds": row["seeds"],
                "mean difference": row["mean"],
                "95% interval": interval_text(row["low"], row["high"]),
            }
            if "problem" in row:
                cells = {"problem": row["problem"], **cells}
            shown_rows.append(cells)
        return text_table(shown_rows) if shown_rows else "one agent, and no difference to show"

    __repr__ = __str__


def differences_of(runs: Mapping[str, Sequence[Result | Kept]], baseline: str | None) -> list[Row]:
    """Return regret minus that of the baseline, by default the first, over the seeds of both."""
    name = baseline or next(iter(runs))
    if name not in runs:
        raise ParameterError("baseline", got=repr(baseline), expected=f"one of {list(runs)}")
    theirs = {run.seed: run.total_regret for run in runs[name]}
    rows = []
    for agent, results in runs.items():
        gaps = [run.total_regret - theirs[run.seed] for run in results if run.seed in theirs]
        if agent == name or not gaps:
            continue
        low, high = interval(gaps) or (None, None)
        mean = float(np.mean(gaps))
        seeds = len(gaps)
        row = {"agent": agent, "baseline": name, "seeds": seeds, "mean": mean}
        rows.append({**row, "low": low, "high": high})
    return rows


def tests_of(
    runs: Mapping[str, Sequence[Result | Kept]], level: float, method: Method
) -> PairTests:
    """Return the tests of all pairs of agents on a problem."""
    regret = {}
    for agent, results in runs.items():
        regret[agent] = {run.seed: float(run.total_regret) for run in results}
    return pair_tests(regret, level, method)


def figure(value: float, digits: int) -> str:
    """Return a number with so many digits that count."""
    return f"{value:,.0f}" if abs(value) >= 10.0**digits else f"{value:,.{digits}g}"


def latex_table(columns: str, header: list[str], groups: Sequence[list[list[str]]]) -> str:
    """Return a LaTeX table, with a rule above each group of lines of cells."""
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(header) + r" \\"]
    for group in groups:
        lines.append(r"\midrule")
        lines += [" & ".join(cells) + r" \\" for cells in group]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


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

    def to_latex(self, *, digits: int = 4, bold: bool = False, at: int | None = None) -> str:
        """Return the mean regret of every agent as a LaTeX table, for the package booktabs.

        Parameters
        ----------
        digits : int
            How many digits of a number count.
        bold : bool
            The least regret of a problem, and all that paired tests do not tell apart from it.
        at : int, optional
            Regret after so many episodes; by default after all.
        """
        require_integer("digits", digits, 1, maximum=15)
        header = ["agent", "regret", r"95\,\% interval", "worst seed"]
        several = len(self.runs) > 1
        if several:
            header.insert(0, "problem")
        groups = []
        for problem, agents in self.runs.items():
            if at is not None:
                agents = {name: [cut(run, at) for run in runs] for name, runs in agents.items()}
            rows = [row_of(problem, name, runs) for name, runs in agents.items()]
            best = _not_worse(rows, tests_of(agents, 0.05, "fixed")) if bold else set()
            lines: list[list[str]] = []
            for row in rows:
                regret = figure(row["regret"], digits)
                if row["agent"] in best:
                    regret = rf"\textbf{{{regret}}}"
                ends = interval_text(row["low"], row["high"], digits)
                name = latex_text(row["agent"])
                cells = [name, regret, ends, figure(row["worst"], digits)]
                # the name of a problem stands beside its first agent only
                if several:
                    cells.insert(0, "" if lines else latex_text(problem))
                lines.append(cells)
            groups.append(lines)
        return latex_table("llrrr" if several else "lrrr", header, groups)

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
        from occamrl.answers.figures import plot

        return plot(self.runs, axes, scale=scale, band=band, width=width, problem=problem, **style)

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


def cut(run: Result | Kept, episodes: int) -> Kept:
    """Return a run as far as so many episodes, of which only the regret is kept."""
    require_integer("at", episodes, 1, maximum=run.total_episodes)
    regret = float(run.regret_at(episodes))
    return Kept(run.seed, episodes, regret, 0.0, 0, 0.0, [episodes], [regret])


def _not_worse(rows: list[Row], tests: PairTests) -> set[str]:
    """Return the agent with the least regret, and those that are not told apart from it."""
    least = min(rows, key=lambda row: float(row["regret"]))["agent"]
    best = {least}
    for pair in tests.equal:
        if least in pair:
            best |= {*pair}
    return best


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
