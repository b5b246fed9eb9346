r"""ARL-LIN: adapt to the support and to the norm of theta* while playing (Ghosh et al. 2022, algorithms 2 and 3).

The rows of all phases are pooled: they enter one regression in d dimensions. Learners plan with a
block of it. The paper's own algorithms, on fresh data and with decaying levels, are in
:mod:`occamrl.paper`.

**ARL-LIN(dim)** finds the coordinates that matter::

    for epochs i = 0, 1, 2, ...
        D_i = the set of coordinates with the smallest penalised loss (all of them for i = 0) play
        UCRL-VTR-LIN on the coordinates D_i for g^i k_0 episodes                     exploitation
        play UCRL-VTR-LIN on all coordinates for e^i ceil(sqrt(k_0)) episodes             estimation

*Penalised loss.* With the pooled Sigma = lambda I + gram, the set minimises

.. math:: J(D) = L_\lambda(\theta_D) + \tfrac14\big(\log\det(\Sigma_{DD}/\lambda) + 2\,price(|D|)\big), \qquad
    price(m) = \log\big((d + 1)\tbinom dm\big), \quad price(d) = \log 2,

the loss of its ridge estimate plus what its ellipsoid costs with every set of that size held
possible at once. All 2^d sets are out of reach: the search starts from the last set and from the
best sets of a forward path and of a beam, and steps by additions, removals and exchanges until none
helps. Having met the set of all coordinates, it leaves out no j with :math:`\hat\theta_j^2 >
(pen([d]) - pen(D))(\Sigma^{-1})_{jj}`. Where a direction was not excited this says nothing, which
is why estimation phases exist. After D has changed, the next one is twice as long as planned, at
most about sqrt(k_i), and returns to the plan step by step once D rests. A true coordinate that is
missed costs optimism, not the run: estimation goes on in all coordinates and brings it back as soon
as it pays for itself.

*Guarantee.* With probability 1 - delta, at all times, for every D that contains the support of
theta*, its ellipsoid at level delta e^{-price} contains theta*: of the sets that contain it, the
levels add up to less than delta.

**ARL-LIN(norm)** finds how large theta* is::

    b_0 = b
    for epochs i = 0, 1, 2, ...
        play UCRL-VTR-LIN with norm bound b_i for g^i k_0 episodes
        b_{i+1} = min(b_i, max { ||theta|| : theta in its confidence ellipsoid })

The noise event does not involve b, so one delta serves all epochs, and the maximum is taken of its
own result until nothing changes. lambda follows the bound: a *grid* d/(4 (b/2^j)^2), j = 0, ..., J,
each at level delta/(J+1), b/2^J not below the smallest norm of any kernel. All events hold at once,
and any two may be combined,

.. math:: \beta = L_{\lambda'}(\theta') - L_\lambda(\theta) + \tfrac14\big(\log\det(\Sigma'/\lambda') +
    2\log\tfrac{J+1}\delta\big) + \lambda b^2, \qquad
    L_{\lambda'}(\theta') - L_\lambda(\theta) = (\lambda' - \lambda)\langle\theta, \theta'\rangle,

so that lambda' suits the norm that theta* shows and lambda the bound that is known. A plan takes
the pair with the smallest volume. If no theta is left within the bound, the rows contradict it: the
bound that was given is played.

**ARL-LIN** does both on the same rows. The bound that is carried over looks at all coordinates, so
it is valid whatever D is; an exploitation phase takes the smaller one of its own ellipsoid, which
is never carried over.

That the support is found, when, that no coordinate too many is kept, and the regret are measured,
not proved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from occamrl.errors import ParameterError, require_integer, require_number, require_rewards
from occamrl.evidence import value
from occamrl.learners.ucrl_vtr_lin import Pace, UCRLVTRLin, optimistic_values
from occamrl.models.features import FeatureMap
from occamrl.protocols import MOST_EPISODES, Floats, Flow, Ints, Known, Learner, Plan

EXPLOITATION, ESTIMATION = "exploitation", "estimation"

_WIDTH, _PATIENCE = (
    16,
    3,
)  # sets of each size that a beam goes on from; sizes without a better one after which it ends
_STRETCH = 2.0  # how much longer an estimation phase is after the support has changed
_PROGRESS = 1e-9  # an improvement smaller than this is rounding
_MOST_ROUNDS, _WORTHWHILE = (
    50,
    1e-3,
)  # of refining a norm bound; the relative improvement that is worth another
_ROUNDING = 1e-6  # the relative error that a norm computed from features may have


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLin(Learner):
    """Adapt to the number of non-zero coordinates of theta* and to its norm.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLin(features=orl.FeatureMap(problem.phi), norm_bound=100.0)
    >>> result = orl.run(agent, problem, episodes=100)

    Parameters
    ----------
    features, norm_bound, delta, scale, replan
        Of the base algorithm, :class:`~occamrl.learners.ucrl_vtr_lin.UCRLVTRLin`. ``norm_bound``
        may be far too large where the norm is to be found.
    initial_episodes : int
        k_0.
    growth, estimation_growth : float
        g and e: how much longer an exploitation and an estimation phase is than the one before.
    dimension, norm : bool
        What is to be found. :class:`ARLLinDim` finds the support alone, :class:`ARLLinNorm` the
        norm alone.

    Notes
    -----
    Facts of a plan: ``epoch``; ``label``; ``chosen``, the coordinates selected; ``norm_bound``. Grounds: ``estimate``,
    theta of the coordinates that plan; ``contradicted``, whether the rows leave no kernel within the bound.
    """

    features: FeatureMap
    norm_bound: float
    delta: float = 0.05
    scale: float = 1.0
    replan: float = 0.2
    initial_episodes: int = 4
    growth: float = 2.0
    estimation_growth: float = 1.05
    dimension: bool = True
    norm: bool = True

    def __post_init__(self) -> None:
        if not (self.dimension or self.norm):
            expected = (
                "dimension=True, norm=True or both; where neither is to be found, play UCRLVTRLin"
            )
            raise ParameterError("dimension, norm", got="False, False", expected=expected)
        own: Any = {"delta": self.delta, "scale": self.scale, "replan": self.replan}
        UCRLVTRLin(features=self.features, norm_bound=self.norm_bound, **own)  # checks them
        if self.features.groups > 1:
            expected = "coordinates that pairs (s, a) share; on one-hot ones play UCRLVTRLin, or ARLGen on a Ladder"
            raise ParameterError(
                "features", got="a map with groups of coordinates", expected=expected
            )
        if self.norm_bound < (1.0 - _ROUNDING) * self.smallest_norm:
            expected = f"at least {self.smallest_norm:.6g}: with these features no theta of a smaller norm is a kernel"
            raise ParameterError("norm_bound", got=self.norm_bound, expected=expected)
        require_integer("initial_episodes", self.initial_episodes, 1)
        for name in ("growth", "estimation_growth"):
            require_number(name, getattr(self, name), 1.0, 1e100)

    @cached_property
    def smallest_norm(self) -> float:
        """The smallest ||theta|| with which the probabilities of every (s, a) sum to one; 0 if no theta does that."""
        sums = self.features.sums
        theta = np.linalg.lstsq(sums, np.ones(len(sums)), rcond=None)[0]
        return (
            float(np.linalg.norm(theta))
            if np.allclose(sums @ theta, 1.0, rtol=0.0, atol=_ROUNDING)
            else 0.0
        )

    def grid(self, m: int) -> tuple[Floats, float]:
        """Return the lambdas for a set of m coordinates, 1 unless the norm is to be found; and log(1/level) of each."""
        level = math.log(1.0 / self.delta) + (
            log_price(self.features.dimension, m) if self.dimension else 0.0
        )
        if not self.norm:
            return np.ones(1), level
        if self.smallest_norm == 0.0:
            return np.array([m / (4.0 * self.norm_bound**2)]), level
        count = 1 + max(0, math.floor(math.log2(self.norm_bound / self.smallest_norm) + 1e-9))
        return m / (4.0 * (self.norm_bound / 2.0 ** np.arange(count)) ** 2), level + math.log(count)

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the state before any data."""
        require_rewards(known, self.features)
        bound, every = float(self.norm_bound), list(range(self.features.dimension))
        state = value.begin(self.features) | {
            "epoch": 0,
            "label": EXPLOITATION,
            "active": every,
            "stretched": 1.0,
        }
        state |= {"carried": bound, "norm_bound": bound, "contradicted": False}
        self._begin_phase(state)
        return state

    def _begin_phase(self, state: dict[str, Any]) -> None:
        """Choose the support and the norm bound of a phase, and how long it lasts."""
        exploits, epoch, d = state["label"] == EXPLOITATION, state["epoch"], self.features.dimension
        if self.norm:
            state["carried"], state["contradicted"] = self.refine(
                state, list(range(d)), state["carried"]
            )
        state["norm_bound"] = state["carried"]
        if self.dimension and exploits and epoch > 0:
            active = sharp_support(
                state["gram"][0, 0] + np.eye(d), state["xy"][0, 0], 1.0, state["active"]
            )
            moved = active != state["active"]
            state["stretched"] = max(
                1.0, state["stretched"] * (_STRETCH if moved else 1.0 / _STRETCH)
            )
            state["active"] = active
        if self.dimension and self.norm and exploits:
            bound, contradicted = self.refine(state, state["active"], state["carried"])
            state["norm_bound"] = state["carried"] if contradicted else bound
        planned = self.initial_episodes * self.growth**epoch
        if not exploits:
            first = math.isqrt(self.initial_episodes - 1) + 1
            planned = first * self.estimation_growth**epoch
            longest = first * math.sqrt(self.growth) ** epoch
            planned = max(planned, min(state["stretched"] * planned, longest))
        state["left"], state["pace"] = (
            math.ceil(round(min(planned, MOST_EPISODES), 6)),
            Pace(np.zeros(1)),
        )

    def plan(self, known: Known, state: dict[str, Any], draw: np.random.Generator) -> Plan:
        """Plan with the active coordinates, or with all of them to estimate."""
        chosen = (
            state["active"]
            if state["label"] == EXPLOITATION
            else list(range(self.features.dimension))
        )
        spectrum = value.Spectrum.of(*block(state, chosen))
        lam, beta = self.smallest_ellipsoid(spectrum, state["norm_bound"])
        ellipsoid = value.Ellipsoid(
            *(np.asarray(part)[None, None] for part in spectrum.ellipsoid(lam))
        )
        width, logdet = self.scale * np.sqrt([beta]), ellipsoid.logdet[0]
        found = optimistic_values(self.features, known, ellipsoid, width, chosen)
        pace = state["pace"].next(logdet, found, self.replan)
        facts: dict[str, Any] = {"epoch": state["epoch"]}
        diagnostics = {"estimate": ellipsoid.theta[0, 0].tolist(), "regularization": lam}
        if self.dimension:
            facts |= {"label": state["label"], "chosen": list(state["active"])}
        if self.norm:
            facts |= {"norm_bound": state["norm_bound"]}
            diagnostics |= {
                "carried_bound": state["carried"],
                "contradicted": state["contradicted"],
            }
        told: Any = {"facts": facts, "diagnostics": diagnostics, "carry": pace}
        return Plan(
            policy=found.policy,
            values=found.values,
            episodes=min(state["left"], pace.episodes),
            **told,
        )

    def learn(self, known: Known, state: dict[str, Any], plan: Plan, flow: Flow) -> None:
        """Add the rows of the block; begin the next phase if this one is over."""
        value.add(state, self.features, known, plan.values, flow)
        state["pace"] = plan.carry._replace(episodes=flow.episodes)
        state["left"] -= flow.episodes
        if state["left"] > 0:
            return
        if self.dimension and state["label"] == EXPLOITATION:
            state["label"] = ESTIMATION
        else:
            state["label"], state["epoch"] = EXPLOITATION, state["epoch"] + 1
        self._begin_phase(state)

    def squared_radii(
        self, spectrum: value.Spectrum, lams: Floats, level: float, bound: float
    ) -> Floats:
        """Return beta of the ellipsoid of each lambda (rows) by the noise event of each lambda' (columns)."""
        centers, logdets = spectrum.center(lams[:, None]), spectrum.logdet(lams[:, None])
        gaps = (lams - lams[:, None]) * (centers @ centers.T)
        return np.asarray(gaps + 0.25 * (logdets + 2.0 * level) + (lams * bound**2)[:, None])

    def refine(self, state: dict[str, Any], chosen: list[int], bound: float) -> tuple[float, bool]:
        """Return the smallest norm bound that the rows prove, and whether they contradict the class; ``bound`` holds.

        A negative beta leaves no theta within the bound, and a bound under the smallest norm no
        kernel.
        """
        lams, level = self.grid(len(chosen))
        spectrum = value.Spectrum.of(*block(state, chosen))
        for _ in range(_MOST_ROUNDS):
            betas = self.squared_radii(spectrum, lams, level, bound).min(axis=1)
            if (betas < 0.0).any() or bound < (1.0 - _ROUNDING) * self.smallest_norm:
                return float(self.norm_bound), True
            each = zip(
                spectrum.eigenvalues + lams[:, None],
                map(spectrum.center, lams),
                betas.tolist(),
                strict=True,
            )
            smaller = min(value.largest_norm(*ellipsoid) for ellipsoid in each)
            if smaller > (1.0 - _WORTHWHILE) * bound:
                break
            bound = smaller
        return bound, False

    def smallest_ellipsoid(self, spectrum: value.Spectrum, bound: float) -> tuple[float, float]:
        """Return lambda and beta of the ellipsoid with the smallest volume; where rows contradict, of its own event."""
        lams, level = self.grid(spectrum.xy.size)
        betas = self.squared_radii(spectrum, lams, level, bound)
        best = betas.min(axis=1) if (betas > 0.0).all() else betas.diagonal()
        volume = spectrum.xy.size * np.log(best) - np.log(spectrum.eigenvalues + lams[:, None]).sum(
            axis=1
        )
        at = int(volume.argmin())
        return float(lams[at]), float(best[at])


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinDim(ARLLin):
    """Adapt to the number of non-zero coordinates of theta*: :class:`ARLLin` with ``norm=False``.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLinDim(features=orl.FeatureMap(problem.phi), norm_bound=1.3)
    >>> result = orl.run(agent, problem, episodes=100)
    """

    norm: bool = field(default=False, init=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLLinNorm(ARLLin):
    """Adapt to the norm of theta*: :class:`ARLLin` with ``dimension=False``, and 16 episodes at first.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("sparse-mixture", seed=0)  # 3 of 16 features matter
    >>> agent = orl.ARLLinNorm(features=orl.FeatureMap(problem.phi), norm_bound=100.0)
    >>> result = orl.run(agent, problem, episodes=100)
    """

    initial_episodes: int = 16
    dimension: bool = field(default=False, init=False)


def block(state: dict[str, Any], chosen: list[int]) -> tuple[Floats, Floats]:
    """Return the [D, D] and [D] blocks of the pooled sums."""
    return state["gram"][0, 0][np.ix_(chosen, chosen)], state["xy"][0, 0][chosen]


# The support with a small penalised loss ----------------------------------------------------------


@lru_cache
def log_price(d: int, m: int) -> float:
    """Return the price of a set of m out of d coordinates that the data chose: log((d + 1) C(d, m)), log 2 if m = d."""
    if m == d:
        return math.log(2.0)
    return math.log(d + 1) + math.lgamma(d + 1) - math.lgamma(m + 1) - math.lgamma(d - m + 1)


def sharp_support(sigma: Floats, xy: Floats, lam: float, last: Iterable[int] = ()) -> list[int]:
    """Return the set of coordinates with the smallest penalised loss that the search finds, increasing; never empty.

    ``sigma`` [d, d] has lambda I in it. The result is never worse than the set of all coordinates.
    """
    path = beam(sigma, xy, lam, width=1, patience=xy.size)
    starts = [path, beam(sigma, xy, lam), sorted(set(last))]
    ends = [descend(sigma, xy, lam, start) for start in dict.fromkeys(map(tuple, starts)) if start]
    return min(ends, key=lambda end: penalised_loss(sigma, xy, lam, end))


def penalised_loss(sigma: Floats, xy: Floats, lam: float, chosen: Iterable[int]) -> float:
    """Return J(D) minus the sum of y^2."""
    at = list(chosen)
    inside, right = sigma[np.ix_(at, at)], xy[at]
    logdet = float(np.linalg.slogdet(inside / lam)[1])
    return 0.25 * (logdet + 2.0 * log_price(xy.size, len(at))) - float(
        right @ np.linalg.solve(inside, right)
    )


def beam(
    sigma: Floats, xy: Floats, lam: float, *, width: int = _WIDTH, patience: int = _PATIENCE
) -> list[int]:
    """Add each coordinate to each of the ``width`` best sets of a size, keep the best, and return the best met.

    It ends when ``patience`` sizes had no better set. With ``width`` 1 and all sizes it is the
    forward path.
    """
    d, price = xy.size, _prices(xy.size)
    tables, inside, values = _table(sigma, xy)[None], np.zeros((1, d), dtype=bool), np.zeros(1)
    best, chosen, waiting = math.inf, inside[0], 0
    for m in range(d):
        after = values[:, None] + _additions(tables, lam) + price[m + 1] - price[m]
        after[inside] = math.inf
        nearest = np.argsort(after, axis=None)[
            : width * (m + 1)
        ]  # a set of m + 1 is reached from so many at most
        steps: dict[bytes, int] = {}
        for step in nearest[np.isfinite(after.ravel()[nearest])].tolist():
            reached = inside[step // d].copy()
            reached[step % d] = True
            steps.setdefault(reached.tobytes(), step)
        parent, coordinate = np.divmod(np.array(list(steps.values())[:width]), d)
        values, tables, inside = (
            after[parent, coordinate],
            _swept(tables[parent], coordinate),
            inside[parent],
        )
        inside[np.arange(parent.size), coordinate] = True
        waiting += 1
        if values[0] < best:
            best, chosen, waiting = float(values[0]), inside[0].copy(), 0
        if waiting == patience:
            break
    return np.flatnonzero(chosen).tolist()


def descend(sigma: Floats, xy: Floats, lam: float, start: Iterable[int]) -> list[int]:
    """Take the best addition, removal or exchange until none helps; return the set.

    With A = [[Sigma, xy], [xy', 0]] swept on D: outside, A[j, j] is what is left of Sigma_jj given
    D, A[j, y] what is left of xy_j; inside, -A[k, k] is the entry of Sigma_DD^-1 and A[k, y] the
    estimate theta_k.
    """
    d, price = xy.size, _prices(xy.size)
    table, inside, toggle = _table(sigma, xy), np.zeros(d, dtype=bool), list(start)
    for _ in range(
        4 * d + 1
    ):  # each step lowers J, so this only stops what rounding could keep going
        for k in toggle:
            table = _swept(table[None], np.array([k]), -1.0 if inside[k] else 1.0)[0]
            inside[k] = not inside[k]
        coming, going = np.flatnonzero(~inside), np.flatnonzero(inside)
        m, changes = going.size, np.full((d + 1, d + 1), math.inf)  # [in, out]; the last: none
        spread, theta = (
            np.clip(-table[going, going], np.finfo(float).tiny, 1.0 / lam),
            table[going, d],
        )
        loss = theta**2 / spread + 0.25 * np.log(spread * lam)  # that a removal adds
        if m < d:
            changes[coming, d] = _additions(table[None], lam)[0, coming] + price[m + 1] - price[m]
            cross = table[np.ix_(coming, going)]
            left = np.maximum(table[coming, coming][:, None] + cross**2 / spread, lam)
            rest = table[coming, d][:, None] + cross * (theta / spread)
            changes[np.ix_(coming, going)] = loss - rest**2 / left + 0.25 * np.log(left / lam)
        if m > 1:
            changes[d, going] = loss + price[m - 1] - price[m]
        if changes.min() >= -_PROGRESS:
            break
        toggle = [
            int(k) for k in np.divmod(int(changes.argmin()), d + 1)[::-1] if k < d
        ]  # the one that goes is first
    return np.flatnonzero(inside).tolist()


def _swept(tables: Floats, coordinate: Ints, sign: float = 1.0) -> Floats:
    """Move one coordinate into each of several regressions [sets, d + 1, d + 1]; out of it with ``sign`` -1."""
    each = np.arange(coordinate.size)
    pivot, column = tables[each, coordinate, coordinate][:, None], tables[each, :, coordinate]
    scaled = column / pivot
    tables = tables - scaled[:, :, None] * column[:, None, :]
    tables[each, :, coordinate], tables[each, coordinate, :] = sign * scaled, sign * scaled
    tables[each, coordinate, coordinate] = -1.0 / pivot[:, 0]
    return tables


def _additions(tables: Floats, lam: float) -> Floats:
    """Return the change of J, prices aside, for each coordinate that could come in [sets, d]."""
    left = np.maximum(np.diagonal(tables, axis1=1, axis2=2)[:, :-1], lam)
    return np.asarray(0.25 * np.log(left / lam) - tables[:, :-1, -1] ** 2 / left)


def _table(sigma: Floats, xy: Floats) -> Floats:
    return np.block([[sigma, xy[:, None]], [xy[None], np.zeros((1, 1))]])


@lru_cache
def _prices(d: int) -> Floats:
    return 0.5 * np.array([log_price(d, m) for m in range(d + 1)])
