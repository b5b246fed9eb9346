"""The theorems on one problem: every right-hand side, its inputs, and where they come from.

What a line says of its number:

given     a parameter of the algorithm, or the number of episodes
computed  exact, from the problem and the truth
bounded   from one side, the one that keeps the theorem true
measured  of one policy and one sequence of value functions
assumed   the theorem asks for it, and nothing here proves it
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from occamrl.errors import ParameterError, require_number
from occamrl.models.ladder import Ladder
from occamrl.paper import quantities, theorems
from occamrl.paper.arl_gen import ARLGen
from occamrl.paper.arl_lin_dim import ARLLinDim
from occamrl.paper.arl_lin_norm import ARLLinNorm
from occamrl.paper.ucrl_vtr import UCRLVTR
from occamrl.problems.mdp import FiniteMDP, as_mdp
from occamrl.protocols import Learner

Kind = Literal["given", "computed", "bounded", "measured", "assumed"]
_LARGE = 1e5  # from which on numbers are written as powers of 10
_MOST_EPISODES = 60  # powers of 10 that are tried for where a bound says something


class Line(NamedTuple):
    """A quantity and where it comes from."""

    name: str
    value: float | int | None  # None: there is none
    kind: Kind
    source: str  # the statement of the paper
    note: str = ""


class Report(NamedTuple):
    """What the paper's theorems say of a selector on a problem."""

    title: str
    lines: tuple[Line, ...]
    sentences: tuple[str, ...]

    def value(self, name: str) -> float | int | None:
        """Return the value of a line."""
        for line in self.lines:
            if line.name == name:
                return line.value
        known = [line.name for line in self.lines]
        raise ParameterError("name", got=repr(name), expected=f"one of {', '.join(known)}")

    def __str__(self) -> str:
        rows = [("quantity", "value", "is", "of", "")]
        for line in self.lines:
            rows.append((line.name, number(line.value), line.kind, line.source, line.note))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [self.title]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
            lines.append("  ".join([*cells, row[4]]).rstrip())
        return "\n".join([*lines, *self.sentences])


def number(value: float | int | None) -> str:
    """Return a number as it is printed."""
    if value is None:
        return "none"
    if isinstance(value, int) or float(value).is_integer():
        whole = int(value)
        return f"{whole:,}" if abs(whole) < _LARGE else f"{float(whole):.3g}"
    return f"{value:.4g}"


def report(selector: Learner, problem: Any, episodes: int) -> Report:
    """Return what the theorems say of a selector to the letter on a problem.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-ladder", states=4, actions=2, dimension=4, horizon=4)
    >>> selector = orl.paper.ARLGen(ladder=orl.Ladder.of_problem(problem))
    >>> found = orl.paper.report(selector, problem, episodes=1_000)
    >>> found.value("i*") > found.value("first epoch that may reject class 1")
    True

    ``selector`` is :class:`~occamrl.paper.arl_gen.ARLGen` on lists,
    :class:`~occamrl.paper.arl_lin_dim.ARLLinDim` or
    :class:`~occamrl.paper.arl_lin_norm.ARLLinNorm`; of a linear problem ``theta`` is the truth.
    """
    require_number("episodes", episodes, 1.0, math.inf)
    mdp = as_mdp(problem)
    if isinstance(selector, ARLGen) and isinstance(selector.ladder, Ladder):
        return _of_classes(selector, selector.ladder, mdp, episodes)
    theta = getattr(problem, "theta", None)  # a problem of any kind may have one
    if isinstance(selector, (ARLLinDim, ARLLinNorm)) and theta is not None:
        truth = np.asarray(theta, dtype=np.float64)
        if isinstance(selector, ARLLinDim):
            return _of_dimension(selector, problem, truth, episodes)
        return _of_norm(selector, problem, truth, episodes)
    expected = "orl.paper.ARLGen on lists, or ARLLinDim or ARLLinNorm and a problem with theta"
    raise ParameterError("selector", got=f"a {type(selector).__name__}", expected=expected)


def _total(name: str, total: float, steps: float, source: str) -> Line:
    """Return the line of a right-hand side, and whether it says anything."""
    note = "vacuous: above KH" if total >= steps else "below KH"
    return Line(name, total, "bounded", source, note)


def _terms(terms: dict[str, float], source: str) -> list[Line]:
    """Return the terms of a right-hand side."""
    lines = []
    for name, value in terms.items():
        if name != "total":
            lines.append(Line(f"  {name}", value, "bounded", source))
    return lines


def _vacuous_until(bound: Any, horizon: int) -> str:
    """Say from how many episodes on a bound is below KH, to a power of 10."""
    for power in range(_MOST_EPISODES):
        K = 10**power
        if bound(K) < float(K) * horizon:
            return f"The bound is below KH from about 10^{power} episodes on."
    return f"The bound is above KH up to 10^{_MOST_EPISODES} episodes."


# Theorem 1 ----------------------------------------------------------------------------------------


def _of_classes(selector: ARLGen, ladder: Ladder, mdp: FiniteMDP, episodes: int) -> Report:
    m = ladder.class_of(mdp)
    if m is None:
        raise ParameterError("ladder", got="no class with the truth", expected="one that has it")
    H = mdp.horizon
    steps = float(episodes * H)
    delta = selector.delta
    right = ladder.family_of(m)
    found = quantities.separation(ladder, mdp)
    eluder = quantities.eluder(right, mdp.known, 1.0 / steps)
    size = ladder.sizes[-1]
    lines = [
        Line("H", H, "given", "section 1.2"),
        Line("K", episodes, "given", "section 1.2"),
        Line("delta", delta, "given", "algorithm 1"),
        Line("m*", m, "computed", "section 2"),
        Line("log|F_M|", math.log(size), "computed", "lemma 1, the metric entropy M_M"),
        Line("log|F_m*|", math.log(right.size), "computed", "theorem 1, the metric entropy M*"),
        Line("beta(F_m*, delta)", selector.on_class(m).beta(H), "computed", "appendix A.1"),
        Line("eluder dimension, from below", eluder.lower, _side(eluder), "definition 1"),
        Line("eluder dimension, from above", eluder.upper, _side(eluder), "definition 1"),
    ]
    sentences = []
    first_epoch: int | None = 1
    for smaller, (everywhere, shown) in enumerate(zip(*found, strict=True), start=1):
        name = ladder.names[smaller - 1]
        note = "fails: lemma 1 does not apply as it is stated" if everywhere <= 1e-12 else ""
        lines.append(
            Line(f"Delta everywhere, class {smaller}", everywhere, "computed", "assumption 1", note)
        )
        lines.append(
            Line(f"Delta shown by class {smaller}", shown, "computed", "assumption 1, in its place")
        )
        first = quantities.first_rejecting_epoch(ladder, mdp.known, smaller, delta)
        lines.append(
            Line(f"first epoch that may reject class {smaller}", first, "bounded", "lemma 1")
        )
        likely = quantities.rejecting_epoch(shown)
        lines.append(
            Line(f"epoch expected to reject class {smaller}", likely, "measured", "lemma 1")
        )
        sentences.append(_rejection(name, first, likely, delta))
    if found.played:
        first_epoch = _guaranteed(min(found.played), H, delta, math.log(size))
        lines.append(Line("i*", first_epoch, "assumed", "lemma 1", "if rows show Delta"))

    def bound(K: int) -> dict[str, float]:
        setting = theorems.Setting(horizon=H, episodes=K, delta=delta)
        return theorems.regret_bound_generic(
            setting,
            radius=lambda k, level: UCRLVTR(family=right, delta=max(level, 1e-300)).beta(H, k),
            eluder=eluder.upper,
            first_epoch=first_epoch or 1_000,
        )

    terms = bound(episodes)
    lines += [
        _total("regret at most", terms["total"], steps, "theorem 1"),
        *_terms(terms, "theorem 1"),
    ]
    lines.append(Line("KH", steps, "given", "section 1.2"))
    sentences.append("As its proof has it, theorem 1 holds with probability 1 - 4 delta.")
    sentences.append(_vacuous_until(lambda K: bound(K)["total"], H))
    return Report(f"ARL-GEN to the letter, {episodes:,} episodes", tuple(lines), tuple(sentences))


def _side(eluder: quantities.Bounds) -> Kind:
    return "computed" if eluder.exact else "bounded"


def _guaranteed(separation: float, horizon: int, delta: float, entropy: float) -> int | None:
    """Return i*, or None where nothing separates the classes."""
    if separation <= 1e-12:
        return None
    return theorems.selection_epoch_generic(
        horizon=horizon, delta=delta, separation=separation, entropy=entropy
    )


def _rejection(name: str, first: int | None, likely: int | None, delta: float) -> str:
    """Say from when on the letter's test can reject a class."""
    if first is None:
        return f"The test of lemma 1 never rejects {name!r}, except with probability {delta:g}."
    text = (
        f"The test of lemma 1 does not reject {name!r} before epoch {first} (episode "
        f"{2**first - 1:,}), except with probability {delta:g}"
    )
    if likely is None or likely > 60:
        return f"{text}; on what its plans show it is not expected to."
    return f"{text}; it is expected to by epoch {likely} (episode {2**likely - 1:,})."


# Theorems 2 and 3 ---------------------------------------------------------------------------------


def _linear_inputs(selector: Any, problem: Any, episodes: int) -> tuple[list[Line], Any]:
    """Return the lines that the linear theorems share, and their setting."""
    mdp = as_mdp(problem)
    g = quantities.feature_bound(selector.features, mdp.horizon)
    rho = quantities.excitation(selector.features, problem)
    lines = [
        Line("H", mdp.horizon, "given", "section 1.2"),
        Line("K", episodes, "given", "section 1.2"),
        Line("delta", selector.delta, "given", "algorithms 2 and 3"),
        Line("d", selector.features.dimension, "given", "section 3"),
        Line("b", selector.norm_bound, "given", "definition 2"),
        Line(
            "max ||phi_V||",
            g.upper,
            "computed" if g.exact else "bounded",
            "section 3, where it is 1",
        ),
        Line("rho of the uniform policy", rho, "measured", "assumption 2, lemma 3"),
    ]
    given: dict[str, Any] = {
        "horizon": mdp.horizon,
        "episodes": episodes,
        "delta": selector.delta,
        "dimension": selector.features.dimension,
        "norm_bound": selector.norm_bound,
        "feature_bound": g.upper,
        "initial_episodes": selector.initial_episodes,
    }
    if rho > 0.0:
        given["excitation"] = rho
    if isinstance(selector, ARLLinDim):
        given |= {
            "growth": selector.growth,
            "estimation_growth": selector.estimation_growth,
            "threshold": selector.threshold,
        }
    return lines, given


def _of_dimension(selector: ARLLinDim, problem: Any, theta: Any, episodes: int) -> Report:
    lines, given = _linear_inputs(selector, problem, episodes)
    H = given["horizon"]
    steps = float(episodes * H)
    support = np.flatnonzero(theta)
    smallest = float(np.abs(theta[support]).min())
    setting = theorems.Setting(**given)
    lines += [
        Line("d*", int(support.size), "computed", "theorem 2"),
        Line("gamma, the smallest |theta_j|", smallest, "computed", "lemma 5"),
    ]
    sentences: list[str] = []
    first_epoch = 10**6
    if setting.excitation is not None:
        lines.append(Line("tau_min", theorems.tau_min(setting), "assumed", "lemma 3", "with rho"))
        if setting.estimation_growth >= setting.threshold**-2:
            k_0 = theorems.initial_episodes_dimension(setting)
            lines.append(Line("k_0 that is enough", k_0, "assumed", "lemma 5", "with rho"))
        first_epoch = theorems.selection_epoch_dimension(setting, smallest=smallest)
        lines.append(Line("i*", first_epoch, "assumed", "lemma 5", "with rho, and k_0 as given"))

    def bound(K: int) -> dict[str, float]:
        longer = theorems.Setting(**{**given, "episodes": K})
        epoch = first_epoch
        if longer.excitation is not None:
            epoch = theorems.selection_epoch_dimension(longer, smallest=smallest)
        return theorems.regret_bound_dimension(
            longer, sparsity=int(support.size), first_epoch=epoch
        )

    lines += _right_side(bound, episodes, steps, "theorem 2", sentences, H)
    lines.append(Line("KH", steps, "given", "section 1.2"))
    return Report(f"ARL-LIN(dim) to the letter, {episodes:,} episodes", tuple(lines), (*sentences,))


def _of_norm(selector: ARLLinNorm, problem: Any, theta: Any, episodes: int) -> Report:
    lines, given = _linear_inputs(selector, problem, episodes)
    H = given["horizon"]
    steps = float(episodes * H)
    norm = float(np.linalg.norm(theta))
    lines.append(Line("||theta*||", norm, "computed", "theorem 3"))
    sentences: list[str] = []
    setting = theorems.Setting(**given)
    if setting.excitation is not None:
        lines.append(Line("tau_min", theorems.tau_min(setting), "assumed", "lemma 3", "with rho"))
        k_1 = theorems.initial_episodes_norm(
            theorems.Setting(**{**given, "episodes": 10**40}), true_norm=norm, excess=norm
        )
        note = "for b_i <= 2 ||theta*|| from epoch 2 on, K = 10^40"
        lines.append(Line("k_1 that is enough", k_1, "assumed", "lemma 6", note))

        def bound(K: int) -> dict[str, float]:
            longer = theorems.Setting(**{**given, "episodes": K})
            return theorems.regret_bound_norm(longer, true_norm=norm)

        lines += _right_side(bound, episodes, steps, "theorem 3", sentences, H)
    else:
        sentences.append("The uniform policy excites no more than d - 1 directions: no bound.")
    lines.append(Line("KH", steps, "given", "section 1.2"))
    return Report(
        f"ARL-LIN(norm) to the letter, {episodes:,} episodes", tuple(lines), (*sentences,)
    )


def _right_side(
    bound: Any, episodes: int, steps: float, source: str, sentences: list[str], horizon: int
) -> Sequence[Line]:
    """Return the lines of a right-hand side; a sentence says where it is below KH."""
    try:
        terms = bound(episodes)
    except ParameterError as error:  # the radius with c = 1 is not proved for these features
        sentences.append(f"No bound with c = 1: {error}")
        return []
    share = {"theorem 2": 7, "theorem 3": 6}[source]
    sentences.append(f"Under what is assumed {source} holds with probability 1 - {share} delta.")
    sentences.append(_vacuous_until(lambda K: bound(K)["total"], horizon))
    return [_total("regret at most", terms["total"], steps, source), *_terms(terms, source)]
