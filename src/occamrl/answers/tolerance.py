"""What an answer says of models that are a little wrong: how wrong, and up to where it holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from occamrl.answers.wording import (
    Sentence,
    advice_misspecified,
    earned_or_cost,
    earns,
    listed,
    money,
    pair_in_words,
    points,
    what_next,
    what_to_do,
)
from occamrl.errors import NotAvailable, require_number
from occamrl.evidence.tolerance import GRID
from occamrl.evidence.tolerant import LARGEST, BallWorlds, TolerantEvidence
from occamrl.protocols import DoubtfulPair, Interval, OffBy

if TYPE_CHECKING:
    from occamrl.answers.answer import Answer

SHOWN = (0.005, 0.01, 0.02)  # tolerances at which a worth is told if none was chosen
_DRAWN = 8  # tolerances of a picture
_PRECISE = 5e-5  # to which the break-even is found
_SEARCHES = 8  # for models in which a policy is worse than today's


def weigher_of(answer: Answer) -> TolerantEvidence:
    """Return evidence that can be asked for any tolerance."""
    if isinstance(answer.weigher, TolerantEvidence):
        return answer.weigher
    raise NotAvailable(
        "no tolerance here: orl.select keeps what it needs, by likelihood, for lists and real "
        "parameters; an agent does with Occam(tolerance=...)"
    )


def off_by(answer: Answer) -> OffBy:
    """Return by how much all models are off."""
    return weigher_of(answer).off_by(answer.state)


def surviving(answer: Answer) -> float | None:
    """Return the smallest tolerance of a grid at which a model is left; None if none is."""
    evidence = weigher_of(answer)
    for tolerance in GRID:
        if evidence.weigh(answer.state, tolerance).against.min() <= evidence.threshold:
            return tolerance
    return None


def worlds_at(answer: Answer, tolerance: float) -> BallWorlds:
    """Return the worlds within a tolerance of what is left of the models at it."""
    require_number("tolerance", tolerance, 0.0, LARGEST)
    return weigher_of(answer).worlds_within(answer.state, tolerance)


def range_at(answer: Answer, tolerance: float) -> Interval:
    """Return what the recommended policy earns if every step is off by at most a tolerance."""
    worlds = worlds_at(answer, tolerance)
    policy = answer.worlds.rule(answer.policy)
    low, high = worlds.range_of(policy)
    value = float(worlds.returns(policy, worlds.best(answer.chosen - 1)).mean())
    return Interval(min(max(value, low), high), low, high)


def earned_today(answer: Answer, worlds: BallWorlds) -> Interval | None:
    """Return what an episode of the log earned, with its error; None where that is not known."""
    if answer.log is None or answer.log.mean_return is None:
        return None
    return answer.log.earned_range(answer.delta, worlds.largest_worth())


def gain_within(answer: Answer) -> Interval | None:
    """Return what the policy earns more than the log's episodes did, within the tolerance in force.

    Of today's policy nothing is modelled: its worth is what the log earned.
    """
    today = earned_today(answer, worlds_at(answer, answer.tolerance))
    if today is None:
        return None
    worth = answer.worth
    return Interval(worth.value - today.value, worth.low - today.high, worth.high - today.low)


def break_even(answer: Answer) -> float | None:
    r"""Return up to which tolerance the recommended policy surely beats today's.

    Today's is what the episodes of the log earned, with the error of that; None where that is not
    known, or if it does not even at the smallest tolerance at which a model is left.

    Reality is off by some :math:`\varepsilon`, which lies between two tolerances of the grid,
    :math:`g' < \varepsilon \le g`. Then with probability 1 - delta its model is among those that
    are left at g, so the policy beats today's if it does within :math:`\varepsilon` of each of
    these. What it earns at least falls in :math:`\varepsilon`: a bisection finds how far that goes
    between g' and g, and the walk over the grid ends where it does not come to g. The tolerance in
    force is the first of the grid.
    """
    policy = answer.worlds.rule(answer.policy)
    spans: list[Span] = []
    below = 0.0
    in_force = answer.tolerance
    for tolerance in (in_force, *(larger for larger in GRID if larger > in_force)):
        worlds = worlds_at(answer, tolerance)
        if earned_today(answer, worlds) is None:
            return None
        if worlds.some_left:
            spans.append(Span(below, tolerance, worlds))
            if not _beats(answer, policy, worlds):
                break
        below = tolerance
    for span in reversed(spans):
        limit = _limit_in(answer, policy, span)
        if limit is not None:
            return limit
    return None


class Outlook(NamedTuple):
    """What a picture of worth against tolerance shows."""

    tolerances: list[float]
    worths: list[Interval]
    today: Interval | None  # what the log's episodes earned
    break_even: float | None
    more_than: float  # all models are off by more, proved
    estimate: float


def outlook(answer: Answer) -> Outlook:
    """Return what the policy earns from the smallest tolerance at which a model is left onwards."""
    smallest = answer.tolerance if not answer.misspecified else answer.surviving
    assert smallest is not None  # noqa: S101  # the page asks for it only where a model is left
    far = max(smallest, answer.break_even or 0.0, seems_off_by(answer))
    tolerances = sorted({smallest, *(bound for bound in GRID if smallest < bound <= far)})
    tolerances += [bound for bound in GRID if bound > far][:1]
    tolerances = tolerances[:: max(1, len(tolerances) // _DRAWN)]
    worths = [range_at(answer, tolerance) for tolerance in tolerances]
    today = earned_today(answer, worlds_at(answer, smallest))
    return Outlook(
        tolerances,
        worths,
        today,
        answer.break_even,
        answer.off_by.more_than,
        seems_off_by(answer),
    )


class Span(NamedTuple):
    """Tolerances from one of the grid to the next, and the worlds that are left at that."""

    low: float
    high: float
    worlds: BallWorlds


def _beats(answer: Answer, policy: NDArray[Any], worlds: BallWorlds) -> bool:
    today = earned_today(answer, worlds)
    return today is not None and worlds.least_worth(policy) > today.high


def _limit_in(answer: Answer, policy: NDArray[Any], span: Span) -> float | None:
    """Return up to where a policy beats today's in a span; None if it does nowhere in it.

    With real parameters a search looks for models in which it does not, until it finds none.
    """
    worlds = span.worlds
    limit = span.high
    for _ in range(_SEARCHES):
        if not _beats(answer, policy, worlds.around(span.low)):
            return None
        low = span.low
        if _beats(answer, policy, worlds.around(limit)):
            low = limit
        while limit - low > _PRECISE:
            middle = 0.5 * (low + limit)
            if _beats(answer, policy, worlds.around(middle)):
                low = middle
            else:
                limit = middle
        limit = low
        worst = worlds.around(limit).worst_members(policy)
        worlds = worlds.with_members(worst)
        if not len(worst) or _beats(answer, policy, worlds.around(limit)):
            return limit
    return None


# In words -----------------------------------------------------------------------------------------


def where_nothing_fits(answer: Answer) -> list[Sentence]:
    """Go on where no model is exactly right: how wrong, what to do, and up to where that holds."""
    sentences = how_wrong(answer)
    if not answer.valued:
        return [*sentences, *what_next(answer), *assumed_of_tolerances()]
    following = what_next_within(answer)
    return [
        *sentences,
        *what_to_do(answer, following[0].text),
        *what_it_is_worth_within(answer),
        *up_to_where(answer),
        *following,
        *assumed_of_tolerances(),
    ]


def seems_off_by(answer: Answer) -> float:
    """Return an estimate of how far the nearest model is off: on average, or where it is most."""
    worst = weigher_of(answer).off_where_worst(answer.state)
    return max(answer.off_by.estimate, worst)


def too_far_off(answer: Answer) -> bool:
    """Return whether models seem to be further off than they may be for the policy to be better."""
    return answer.break_even is None or seems_off_by(answer) > _down(answer.break_even)


def what_next_within(answer: Answer) -> list[Sentence]:
    """Say what to do next: to use a policy only where models seem to be near enough for it."""
    if answer.break_even is None or answer.too_far_off:
        return what_next(answer)
    trusted = points(_down(answer.break_even))
    advice = advice_misspecified(answer)
    text = f"use it if you trust your models to within {trusted}; to be exact, {advice}"
    return [Sentence("next", text)]


def doubts(answer: Answer) -> list[Sentence]:
    """Say where models seem to be further off than the tolerance in force."""
    estimate = seems_off_by(answer)
    if not answer.tolerance or estimate <= answer.tolerance:
        return []
    about = f"seems to be off by about {points(estimate)} where it misfits most"
    text = f"The nearest model {about}, by an estimate: more than you allow."
    return [Sentence("which", text)]


def _down(tolerance: float) -> float:
    """Return a tolerance rounded down to a hundredth of a point, so that what is said holds."""
    return math.floor(10_000.0 * tolerance) / 10_000.0


def how_wrong(answer: Answer) -> list[Sentence]:
    """Say by how much the models are off, where none is exactly right."""
    wrong = off_by(answer)
    where = ""
    if wrong.where:
        names = []
        for state, action in wrong.where:
            names.append(pair_in_words(answer, DoubtfulPair(state, action, 0.0)))
        about = points(weigher_of(answer).off_where_worst(answer.state))
        misfits = f"The one that comes nearest on average misfits most at {listed(names)}"
        where = f" {misfits}: it seems to be off by about {about} there."
    sentences = []
    if wrong.more_than:
        bound = points(wrong.more_than)
        text = f"For every model there is a step at which it is off by more than {bound}.{where}"
        sentences.append(Sentence("which", text))
    tolerance = answer.surviving
    if tolerance is None:
        text = f"Nothing is left even if every step may be off by {points(GRID[-1])}."
        return [*sentences, Sentence("which", text)]
    name = answer.ladder.names[worlds_at(answer, tolerance).judgement.chosen - 1]
    text = (
        f"{name!r} is left if every step may be off by {points(tolerance)}. On average the nearest "
        f"model seems to be off by {points(wrong.estimate)}: an estimate, not a bound."
    )
    return [*sentences, Sentence("which", text)]


def what_it_is_worth_within(answer: Answer) -> list[Sentence]:
    """Say what the policy earns within tolerances at which a model is left, each with its if.

    One of them is no smaller than what the models seem to be off by.
    """
    smallest = answer.surviving
    if smallest is None:
        return []
    tolerances = [tolerance for tolerance in SHOWN if tolerance >= smallest] or [smallest]
    if seems_off_by(answer) > tolerances[-1]:
        tolerances += [bound for bound in GRID if bound >= seems_off_by(answer)][:1]
    sentences = []
    for tolerance in tolerances:
        amount = range_at(answer, tolerance)
        condition = f"If no step is off by more than {points(tolerance)}"
        earned = f"the policy {earns(answer, amount)} per {answer.labels.episode}"
        sentences.append(Sentence("worth", f"{condition}, {earned}."))
    return sentences


def up_to_where(answer: Answer) -> list[Sentence]:
    """Say up to which tolerance the policy surely beats today's, and how far off models seem."""
    if answer.log is None or answer.log.mean_return is None:
        return []
    limit = answer.break_even
    smallest = answer.surviving if answer.misspecified else answer.tolerance
    mean = answer.log.mean_return
    earned = f"what the log's episodes {earned_or_cost(mean)}, {money(answer, abs(mean))}"
    if smallest is None:
        return []
    if limit is None:
        condition = f"if no step is off by more than {points(smallest)}"
        text = f"That it beats {earned}, is not sure even {condition}."
        return [Sentence("matter", text)]
    text = f"It beats {earned}, as long as no step is off by more than {points(_down(limit))}"
    if answer.too_far_off:
        text += f"; the data suggest that some are off by about {points(seems_off_by(answer))}"
    return [Sentence("matter", f"{text}.")]


def assumed_of_tolerances() -> list[Sentence]:
    """Say what a tolerance forgives, and what not."""
    text = (
        "Off by a number of points: the chances of what follows a state and an action differ by at "
        "most so much, in all; where the log has not been that is assumed, and outcomes that no "
        "model lists are left out of a worth."
    )
    return [Sentence("assumed", text)]
