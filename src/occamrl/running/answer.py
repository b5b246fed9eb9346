"""The practitioner's answer: what a run found, in sentences, and its policy as a table and as a picture.

A selector's facts are its grounds; :class:`Verdict` keeps them and says in words which model is in play, since when,
how sure that is, what it earned and what to do next.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.errors import ParameterError
from occamrl.protocols import Floats, Ints, RuledBases

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from occamrl.running.result import Result

_MOST_NAMED = 8  # coordinates or classes that a sentence lists
_MOST_STATES = 60  # whose names a picture shows


class Verdict(dict[str, Any]):
    """What a selector would decide now: its facts by name, and ``sentences`` that a person can read.

    ``print(verdict)`` prints the sentences.
    """

    sentences: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        import html

        return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)


def verdict(result: Result) -> Verdict:
    """Return what the selector of a result would decide now; a single learner decides nothing."""
    fork = result.walk.fork()
    facts: dict[str, Any] = {}
    if fork.phase.episodes is not None:
        if fork.played:
            fork.finish()
        facts = dict(fork.phase.facts)
    found = Verdict(facts)
    found.sentences = tuple(_sentences(result, facts))
    return found


def _sentences(result: Result, facts: dict[str, Any]) -> list[str]:
    if not result.total_episodes:
        return ["Nothing was played yet."]
    if "chosen" in facts:
        found = _class_sentences(result, facts)
    elif "active" in facts:
        found = _feature_sentences(result)
    elif "norm_bound" in facts:
        found = [f"The norm of the parameter is at most {facts['norm_bound']:.4g}, by the data so far."]
    elif isinstance(result.agent, RuledBases):
        found = _turn_sentences(result, result.agent)
    else:
        found = [f"{result.label} plays one model: nothing was selected."]
    return [*found, _earned(result)]


def class_names(result: Result) -> list[str]:
    """Return the names of the classes of a result's ladder: those it was given, or F_1, F_2, ..."""
    return list(result.agent.ladder.names)  # type: ignore[union-attr]  # only agents with a ladder choose a class


def _class_sentences(result: Result, facts: dict[str, Any]) -> list[str]:
    names, m = class_names(result), int(facts["chosen"])
    since, played, delta = int(facts["since"]), result.total_episodes, float(getattr(result.agent, "delta", math.nan))
    if facts.get("outside"):
        return [
            f"No class of the ladder explains the data{_when(facts.get('outside_since'))}: {names[-1]!r}, the largest, "
            "is rejected too.",
            f"Meanwhile {facts.get('playing', names[-1])} is played, which is what fits best.",
            f"Where a class does hold the truth, this is said by mistake with probability {delta:g} at most.",
            "Next: add a richer class to the ladder, or look for transitions that its models rule out.",
        ]
    found = [f"{names[m - 1]!r} is in play, class {m} of {len(names)}, since episode {since:,} of {played:,}."]
    if m > 1:
        smaller = _listed([repr(name) for name in names[: m - 1]])
        found.append(
            f"{smaller} {'is' if m == 2 else 'are'} rejected by the data; with probability at least {1 - delta:g} the "
            "smallest class that holds the truth is never rejected."
        )
    else:
        found.append("It is the smallest class: nothing in the data speaks against it so far.")
    if m == len(names) > 1:
        found.append(
            "Next: this is the largest class, so nothing richer was tested; if it may be too simple, add a richer one."
        )
    elif since > max(played / 2, 1):
        found.append("Next: the class changed lately; play on before relying on it.")
    else:
        found.append("Next: keep it; were it too small, it would cost reward until the data reject it.")
    return found


def _feature_sentences(result: Result) -> list[str]:
    rows = [row for row in result.phases.to_pylist() if row["label"] != "estimation"]
    active, begin = rows[-1]["active"], 1
    for row in reversed(rows):
        if row["active"] != active:
            break
        begin = row["first_episode"]
    d = len(rows[-1]["estimate"])
    shown = _listed([str(j) for j in active])
    return [
        f"{len(active)} of {d} features are in play since episode {begin:,} of {result.total_episodes:,}: {shown}.",
        "Features outside are not proved to be zero: each is smaller than the threshold of its phase "
        f"({rows[-1]['threshold']:.3g} at most now).",
    ]


def _turn_sentences(result: Result, arena: RuledBases) -> list[str]:
    """Return who played how often, by the rule of an arena."""
    plays = result.state["plays"]
    most = max(range(len(plays)), key=plays.__getitem__)
    counts = [f"{i} ({type(base).__name__}) {plays[i - 1]:,}" for i, base in enumerate(arena.bases, start=1)]
    return [
        f"{type(arena.rule).__name__} chose among {len(plays)} bases before every episode; base {most + 1} "
        f"({type(arena.bases[most]).__name__}) played most, {plays[most]:,} of {sum(plays):,} episodes.",
        f"Episodes of each: {_listed(counts)}.",
    ]


def _earned(result: Result) -> str:
    """Return what the run earned lately, and its regret if that is known."""
    values = result.returns[-max(1, result.returns.size // 10) :]
    spread = f" +- {values.std(ddof=1) / math.sqrt(values.size):.2g}" if values.size > 1 else ""
    some = f"The last {values.size:,} episodes" if values.size > 1 else "The last episode"
    text = f"{some} earned {values.mean():,.4g}{spread}{' each' if values.size > 1 else ''}"
    if result.total_regret is None:
        return text + "; what the best policy would have earned is not known here."
    return text + f"; all {result.total_episodes:,} lost {result.total_regret:,.4g} against the best policy."


def _when(episode: int | None) -> str:
    return "" if episode is None else f" since episode {episode:,}"


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence, cut after a few."""
    if len(names) > _MOST_NAMED:
        return ", ".join(names[:_MOST_NAMED]) + f" and {len(names) - _MOST_NAMED} more"
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else "none"


def smoothed(returns: Floats, most: int = 200) -> tuple[Ints, Floats, Floats]:
    """Return (episode, mean, standard error) of a window that moves over the episodes, a twentieth of them long."""
    width = min(returns.size, max(10, returns.size // 20))
    ends = np.unique(np.linspace(width, returns.size, most).astype(np.int64))
    sums, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (returns, returns**2))
    mean = (sums[ends] - sums[ends - width]) / width
    spread = np.maximum((squares[ends] - squares[ends - width]) / width - mean**2, 0.0)
    return ends, mean, np.sqrt(spread / max(1, width - 1))


def _as_text(names: Sequence[str]) -> list[str]:
    """Return names that a picture shows as they are: what is between dollar signs is no formula."""
    return [name.replace("$", r"\$") for name in names]


def draw_returns(result: Result, axes: Axes, **style: Any) -> None:
    """Draw smoothed returns with two standard errors, and the class in play beneath where one is chosen."""
    ends, mean, error = smoothed(result.returns)
    (line,) = axes.plot(ends, mean, **{"label": result.label, **style})
    axes.fill_between(ends, mean - 2 * error, mean + 2 * error, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel("episode")
    axes.set_ylabel("return of an episode")
    axes.spines[["top", "right"]].set_visible(False)
    rows = [row for row in result.phases.to_pylist() if row.get("chosen") is not None]
    if not rows:
        return
    divide: Any = importlib.import_module("mpl_toolkits.axes_grid1").make_axes_locatable  # it has no types
    names = class_names(result)
    below = divide(axes).append_axes("bottom", size="22%", pad=0.12, sharex=axes)
    chosen = [int(row["chosen"]) for row in rows]
    begins = [  # a class may change in the middle of a phase
        max(1, int(row["since"])) if i and chosen[i] != chosen[i - 1] and row.get("since") else row["first_episode"]
        for i, row in enumerate(rows)
    ]
    below.step([*begins, result.total_episodes], [*chosen, chosen[-1]], where="post", color=line.get_color())
    below.set_yticks(range(1, len(names) + 1), _as_text(names), fontsize="x-small")
    below.set_ylim(0.5, len(names) + 0.5)
    below.set_xlabel("episode")
    below.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("")
    axes.tick_params(labelbottom=False)


def named_policy(
    result: Result, start: int | None, states: Sequence[str] | None, actions: Sequence[str] | None
) -> tuple[Ints, list[str], list[str]]:
    """Return the policy in play [H, S], and the names of states and actions: given, or the environment's own."""
    known, info = result.known, result.environment
    named = []
    for field, given, size in (("states", states, known.states), ("actions", actions, known.actions)):
        if given is not None and (not isinstance(given, Sequence) or len(given) != size):
            got = f"{len(given)} names" if isinstance(given, Sequence) else f"{given!r:.80}"
            raise ParameterError(field, got=got, expected=f"{size} names")
        codec = None if info is None else (info.observation if field == "states" else info.action)
        own = [str(codec.decode(i) if codec is not None and i < codec.size else i) for i in range(size)]
        named.append(own if given is None else [str(name) for name in given])
    return result.policy(start), named[0], named[1]


def policy_rows(
    result: Result, start: int | None, states: Sequence[str] | None, actions: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return one row per state with the action of every step; equal neighbouring steps are joined."""
    policy, state_names, action_names = named_policy(result, start, states, actions)
    cuts = [0, *(h for h in range(1, len(policy)) if (policy[h] != policy[h - 1]).any()), len(policy)]
    found = []
    for s, name in enumerate(state_names):
        row: dict[str, Any] = {"state": name}
        for first, end in itertools.pairwise(cuts):
            row[f"step {first + 1}" + (f" to {end}" if end > first + 1 else "")] = action_names[policy[first, s]]
        found.append(row)
    return found


def draw_policy(
    result: Result, axes: Axes, start: int | None, states: Sequence[str] | None, actions: Sequence[str] | None
) -> None:
    """Draw the policy as a picture: a row per state, a column per step, a colour per action."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    policy, state_names, action_names = named_policy(result, start, states, actions)
    palette = colormaps["tab20" if len(action_names) > 10 else "tab10"]
    colours = [palette(a % palette.N) for a in range(len(action_names))]
    edges = np.arange(len(policy) + 1) + 0.5, np.arange(len(state_names) + 1) - 0.5
    axes.pcolormesh(*edges, policy.T, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5)
    every = -(-len(state_names) // _MOST_STATES)
    axes.set_yticks(range(0, len(state_names), every), _as_text(state_names[::every]), fontsize="x-small")
    axes.invert_yaxis()
    axes.set_xlabel("step")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("state")
    used = [int(a) for a in np.unique(policy)]
    axes.legend(
        [Patch(color=colours[a]) for a in used], _as_text([action_names[a] for a in used]),
        loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, title="action",
    )  # fmt: skip
