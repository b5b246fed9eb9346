"""The one file of words: what is the case, as sentences for a person.

An :class:`~occamrl.answers.answer.Answer` knows what is the case; here it becomes English. A
sentence has a kind, by which pages and printed answers put it in its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from occamrl.naming import spoken
from occamrl.protocols import ErrorMisfit, Interval, Misfit, OutcomeMisfit

if TYPE_CHECKING:
    from occamrl.answers.answer import Answer

Kind = Literal["which", "what to do", "worth", "matter", "try", "next", "assumed"]

QUESTIONS: dict[Kind, str] = {
    "which": "Which model?",
    "what to do": "What to do?",
    "worth": "What is it worth?",
    "matter": "Does it matter?",
    "next": "What next?",
}

_MOST_NAMED = 8  # things that a sentence lists
_MISFITS_NAMED = 3
_WIDE = 0.1  # the share of a worth from which on its range is called wide
_BILLION = math.log(1e9)
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
)  # fmt: skip
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Sentence(NamedTuple):
    """A sentence, and what it is about; an advice (kind "next") begins with a small letter."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        if self.kind == "next":
            return f"Next: {self.text}"
        return self.text


# Numbers and lists --------------------------------------------------------------------------------


def format_number(number: float) -> str:
    """Return a number with four digits that count, without an exponent where that is possible."""
    rounded = float(f"{number:.4g}") + 0.0  # no minus zero
    if 1e3 <= abs(rounded) < 1e15:
        return f"{rounded:,.0f}"
    return f"{rounded:.4g}"


def format_range(interval: Interval) -> str:
    """Return a best guess with its range."""
    value = format_number(interval.value)
    return f"{value} ({format_number(interval.low)} to {format_number(interval.high)})"


def ordinal(number: int) -> str:
    """Return a number as an ordinal, in words where that is usual."""
    if number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    return f"number {number}"


def count_word(number: int) -> str:
    """Return a number, in words where that is usual."""
    if number <= len(_NUMBERS):
        return _NUMBERS[number - 1]
    return str(number)


def count_of(number: int, noun: str) -> str:
    """Return "1 state", "2 states"."""
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {noun}s"


def position(number: int, of: int, noun: str = "model") -> str:
    """Return where a model stands among several."""
    if of == 1:
        return f"the only {noun}"
    plural = "classes" if noun == "class" else f"{noun}s"
    return f"{ordinal(number)} of {count_word(of)} {plural}"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence, cut after a few."""
    if not names:
        return "none"
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def times(nats: float) -> str:
    """Return how many times less likely that many nats are, in words where the number is long."""
    if nats > _BILLION:
        return "over a billion"
    return f"{math.exp(max(nats, 0.0)):,.3g}"


# The answer ---------------------------------------------------------------------------------------


def sentences_of(answer: Answer) -> list[Sentence]:
    """Return the answer for a person to read, in the order in which it is printed."""
    from occamrl.answers.assumed import data_sentences  # which speaks in sentences, too

    if nothing_observed(answer):
        return [Sentence("which", "Nothing has been observed yet.")]
    sentences = which_model(answer)
    if answer.valued and answer.worlds.exact:
        sentences += [*what_it_is_worth(answer), *does_it_matter(answer), *how_to_narrow(answer)]
    sentences += [*what_next(answer), *what_was_earned(answer)]
    return [*sentences, *data_sentences(answer)]


def headline(answer: Answer) -> str:
    """Return the answer in one sentence."""
    if nothing_observed(answer):
        return "Nothing has been observed yet."
    if answer.misspecified:
        return f"None of your {_nouns(answer)} fits the data."
    if not (answer.valued and answer.worlds.exact):
        return f"You need {answer.model!r}."
    if answer.vague:
        seen = count_of(answer.steps, "step")
        return f"The data rule out hardly anything yet ({seen})."
    earns = f"You need {answer.model!r}: its policy earns {money(answer, answer.value)} per episode"
    if answer.gain is None:
        return f"{earns}."
    if answer.gain.low < 0.0:
        return f"{earns}; the data do not show yet that this is more than today's."
    return f"{earns}, {money(answer, answer.gain.value)} more than today's."


def nothing_observed(answer: Answer) -> bool:
    """Say whether simulators have been tested on nothing yet."""
    return answer.ladder.kind == "simulators" and not answer.steps


def _nouns(answer: Answer) -> str:
    return "simulators" if answer.ladder.kind == "simulators" else "models"


def money(answer: Answer, amount: float) -> str:
    """Return an amount in the user's unit."""
    return f"{format_number(amount)} {answer.known.unit_name}".rstrip()


def money_range(answer: Answer, amount: Interval) -> str:
    """Return an amount with its range."""
    value = money(answer, amount.value)
    if math.isnan(amount.low):
        return f"{value} (no range: no model fits)"
    if amount.low == amount.high:  # one model is left
        return value
    return f"{value} ({format_number(amount.low)} to {format_number(amount.high)})"


def which_model(answer: Answer) -> list[Sentence]:
    """Say which model is needed, and what was ruled out."""
    if answer.misspecified:
        texts = _no_model_fits(answer)
    elif answer.vague:
        seen = count_of(answer.steps, "step")
        texts = [
            f"The data ({seen}) rule out hardly anything yet. "
            f"The simplest model that is left is {_described_model(answer)}"
        ]
    else:
        texts = [
            f"You need {_described_model(answer)}",
            *_at_bounds(answer),
            *_members_left(answer),
            *_ruled_out(answer),
            *_level(answer),
            *_not_excluded(answer),
        ]
    return [Sentence("which", text) for text in texts]


def _described_model(answer: Answer) -> str:
    """Return the class chosen, where it stands, and its parameters."""
    if answer.ladder.kind == "simulators":  # whose most plausible one has its own sentence
        return f"{answer.model!r} ({position(answer.chosen, len(answer.ladder.names), 'class')})."
    where = position(answer.chosen, len(answer.ladder.names))
    values = []
    for name, interval in answer.parameters.items():
        values.append(f"{name} {format_range(interval)}")
    if not values:
        return f"{answer.model!r} ({where})."
    return f"{answer.model!r} ({where}): {listed(values)}."


def _no_model_fits(answer: Answer) -> list[str]:
    names = answer.ladder.names
    nouns = _nouns(answer)
    texts = [f"None of your {nouns} fits the data: even {names[-1]!r} is ruled out."]
    judgement = answer.judgement
    if judgement.blends:
        blended = names[judgement.blends[0] - 1]
        texts.append(f"Blends of the {blended!r} models fit: the truth lies between your values.")
    if judgement.novel:
        steps = f"{judgement.novel:,} steps are transitions that every model calls impossible."
        texts.append(steps)
    if answer.ladder.kind != "simulators":
        texts += estimates(answer.ladder.draws)
    if answer.most_plausible:
        texts.append(f"The most plausible is {answer.most_plausible}.")
    texts += [misfit_sentence(misfit) for misfit in answer.raw_misfits[:_MISFITS_NAMED]]
    if answer.ladder.kind == "simulators":
        texts.append("Meanwhile, plan with it.")
    return texts


def estimates(draws: int) -> list[str]:
    """Say what it means that kernels are estimates."""
    if not draws:
        return []
    return [
        f"But your models are estimates from {draws:,} draws for each state and action; with more "
        "data than that, even the right one is ruled out. Make more draws, or test the simulators "
        "themselves (orl.OccamControl)."
    ]


def misfit_sentence(misfit: Misfit) -> str:
    """Say where a model misfits."""
    if isinstance(misfit, OutcomeMisfit):
        where = f"in state {spoken(misfit.state)}, action {spoken(misfit.action)}"
        seen = f"was seen {misfit.seen:,} of {misfit.of:,} times"
        predicted = f"{format_number(misfit.predicted)} were predicted"
        return f"It misfits {where}: next state {spoken(misfit.next_state)} {seen}; {predicted}."
    return _error_sentence(misfit)


def _error_sentence(misfit: ErrorMisfit) -> str:
    """Say in which coordinate and in which direction a simulator errs."""
    if misfit.wider is not None:
        width = f"{misfit.wider:.2g} times as wide as it says"
        return f"Its mean fits; the noise of {listed(misfit.coordinates)} is {width}."

    def errors(sizes: Sequence[float]) -> str:
        texts = []
        for coordinate, size in zip(misfit.coordinates, sizes, strict=True):
            direction = "higher" if size > 0 else "lower"
            texts.append(f"{coordinate} comes out {abs(size):.3g} {direction}")
        return listed(texts)

    size = f"than it says ({misfit.deviations:.2g} standard deviations)"
    if not misfit.feature:
        return f"On average {errors(misfit.at_high)} {size}."
    high_end = "at its upper end"
    low_end = "at its lower end"
    if misfit.unbounded:
        high_end = "one typical spread above its middle"
        low_end = "one below it"
    high = f"Where {misfit.feature} is {high_end}, {errors(misfit.at_high)}"
    return f"{high}; {low_end}, {errors(misfit.at_low)} {size}."


def _at_bounds(answer: Answer) -> list[str]:
    texts = []
    for name in answer.at_bounds:
        value = format_number(answer.parameters[name].value)
        texts.append(f"The best {name} is at the bound that you gave it, {value}.")
    return texts


def _members_left(answer: Answer) -> list[str]:
    """Say which simulator is the most plausible, and how many are left."""
    if not answer.most_plausible:
        return []
    alive = answer.judgement.alive[-1]
    members = answer.ladder.sizes[-1] or alive
    verb = "is" if alive == 1 else "are"
    return [
        f"Its most plausible simulator is {answer.most_plausible}; "
        f"{alive:,} of {members:,} {verb} left."
    ]


def _level(answer: Answer) -> list[str]:
    """Say how rarely a test of simulators, whose evidence is a bet, is wrong."""
    if answer.evidence != "exchangeability":
        return []
    level = f"with probability at most {answer.delta:g}"
    return [f"A class that contains the truth is ruled out {level}."]


def _ruled_out(answer: Answer) -> list[str]:
    texts = []
    for name, (when, worse) in answer.ruled_out.items():
        after = "" if when is None else f" after {count_of(when, answer.counted_in)}"
        texts.append(f"{name!r} was ruled out{after}: {_why_ruled_out(answer, worse)}.")
    return texts


def _why_ruled_out(answer: Answer, worse: float) -> str:
    if answer.evidence == "value":
        return "it predicts the value of next states too badly"
    if math.isinf(worse):
        return "it calls impossible what was seen"
    limit = f"the limit is {1.0 / answer.delta:,.0f} times"
    if answer.evidence == "exchangeability":
        return f"bets against it have won {times(math.log(worse))} times their stake ({limit})"
    how_much = f"{times(math.log(worse))} times worse than the best explanation"
    return f"by now it explains the data {how_much} ({limit})"


def _not_excluded(answer: Answer) -> list[str]:
    """Say what the data leave open about richer classes."""
    texts = []
    if answer.chosen == 1 and len(answer.ladder.names) > 1:
        texts.append("It is the simplest, and nothing in the data speaks against it so far.")
    if answer.status in ("at least", "not enough data"):
        texts.append("Richer models are not excluded: they are not needed to explain the data.")
    if answer.more is None:
        return texts
    if math.isfinite(answer.more.if_wrong):
        episodes = count_of(round(answer.more.if_wrong), "more such episode")
        texts.append(f"If it is too simple, about {episodes} would show it.")
    if answer.more.never:
        same = f"{answer.more.never:,} richer models predict the same at every step"
        texts.append(f"{same}: only other data can tell.")
    return texts


def what_it_is_worth(answer: Answer) -> list[Sentence]:
    """Say what the policy is worth."""
    worth = money_range(answer, answer.worth)
    return [Sentence("worth", f"The recommended policy earns {worth} per episode.")]


def does_it_matter(answer: Answer) -> list[Sentence]:
    """Say what it is worth against today's and against those of simpler models."""
    texts = []
    if answer.gain is not None:
        gain = answer.gain
        direction = "more"
        if gain.value < 0.0:
            direction = "less"
            gain = Interval(-gain.value, -gain.high, -gain.low)
        amount = money_range(answer, gain)
        texts.append(f"It earns {amount} {direction} than today's, estimated from the log.")
    for name, loss in answer.price_of_simplicity.items():
        outcome = "do about as well"
        if loss.value > 0.0:
            outcome = f"earn {money_range(answer, loss)} less"
        texts.append(f"The best policy of {name!r} would {outcome}.")
    return [Sentence("matter", text) for text in texts]


def how_to_narrow(answer: Answer) -> list[Sentence]:
    """Say what would narrow a wide range."""
    width = answer.worth.high - answer.worth.low
    scale = max(abs(answer.worth.value), answer.known.unit.scale)
    if width <= _WIDE * scale or not answer.doubtful:
        return []
    pairs = []
    for pair in answer.doubtful:
        pairs.append(f"action {spoken(pair.action)} in state {spoken(pair.state)}")
    return [Sentence("try", f"The range is wide; to narrow it, try {listed(pairs)}.")]


USE_IT = Sentence("next", "use it. If it is too simple, later data will show that.")


def what_next(answer: Answer) -> list[Sentence]:
    """Say what to do next."""
    if answer.misspecified:
        return [Sentence("next", _advice_misspecified(answer))]
    return [Sentence("next", _advice(answer))]


def _advice(answer: Answer) -> str:
    gain = answer.gain if answer.valued and answer.worlds.exact else None
    if gain is not None and gain.low < 0.0:
        return "keep today's policy while you collect more data: this one may earn less."
    if gain is None and answer.vague:
        return "collect more data before you rely on it."
    if answer.changed:
        return "the class changed lately; collect more data before you rely on it."
    return USE_IT.text


def _advice_misspecified(answer: Answer) -> str:
    if answer.judgement.blends:
        return "list finer values, or fit real parameters (orl.Model)."
    if answer.judgement.novel:
        return (
            "allow what happened in your models; "
            "or look for a variable that is missing from the state."
        )
    if answer.ladder.kind == "list":
        # nothing tells whether values between those listed would do
        return (
            "fit real parameters (orl.Model): finer values may do. "
            "If not, a variable may be missing."
        )
    if answer.ladder.kind == "simulators":
        return "add what is missing as a richer class, or list finer values of the parameters."
    return "add a richer class, or look for a variable that is missing from the state."


def what_was_earned(answer: Answer) -> list[Sentence]:
    """Say what the last episodes of a controller earned, and whether rewards are as promised."""
    if not len(answer.returns):
        return []
    lately = answer.returns[-max(1, len(answer.returns) // 4) :]
    mean = f"{sum(lately) / len(lately):,.4g}"
    texts = [f"The last episode earned {mean}."]
    if len(lately) > 1:
        texts = [f"Each of the last {len(lately):,} episodes earned {mean} on average."]
    if answer.reward_error > 1e-6 * max(1.0, *(abs(earned) for earned in answer.returns)):
        error = f"{answer.reward_error:.3g} per step on average"
        texts.append(f"The rewards that came differ from the ladder's reward by {error}.")
    return [Sentence("assumed", text) for text in texts]


def questions_of(answer: Answer) -> dict[str, list[str]]:
    """Return the answer as lines to the questions that a person asks."""
    if nothing_observed(answer):
        return {}
    asked = {QUESTIONS["which"]: [sentence.text for sentence in which_model(answer)]}
    following = [capital(sentence.text) for sentence in what_next(answer)]
    if answer.valued and answer.worlds.exact:
        worth = [sentence.text for sentence in what_it_is_worth(answer)]
        matter = [sentence.text for sentence in does_it_matter(answer)]
        asked[QUESTIONS["what to do"]] = answer.policy.brief
        asked[QUESTIONS["worth"]] = worth
        asked[QUESTIONS["matter"]] = matter or ["There is nothing simpler to compare it with."]
        following += [sentence.text for sentence in how_to_narrow(answer)]
    elif answer.ladder.kind == "simulators":
        asked |= simulated_questions(answer)
    asked[QUESTIONS["next"]] = following
    return asked


def simulated_questions(answer: Answer) -> dict[str, list[str]]:
    """Return what a planner in simulators does, earns, and would lose in simpler ones."""
    plan = f"Plan with {answer.most_plausible}"
    if not answer.misspecified:
        plan = f"Plan with {answer.worlds.some(1)[0].label}, the most plausible that is left"
    asked = {QUESTIONS["what to do"]: [f"{plan}, anew at every step."]}
    if not answer.runs:
        return asked
    where = "if it is nearly right"
    if not answer.misspecified:
        alive = answer.judgement.alive[-1]
        where = "in the one simulator that is left"
        if alive > 1:
            where = f"in the {alive:,} simulators that are left"
        if answer.maximum is not None and alive > answer.maximum:
            where = (
                f"in the {answer.maximum} most plausible of the {alive:,} simulators that are left"
            )
    worth = money_range(answer, answer.worth)
    if answer.misspecified:
        worth = money(answer, answer.value)
    earns = f"The planner earns {worth} per episode, {where}."
    asked[QUESTIONS["worth"]] = [earns]
    losses = []
    for name, price in answer.price_of_simplicity.items():
        losses.append(f"Planning with {name!r} alone would {_loss(answer, price)}.")
    asked[QUESTIONS["matter"]] = losses or ["There is nothing simpler to compare it with."]
    return asked


def _loss(answer: Answer, price: Interval) -> str:
    """Say what a policy loses."""
    if math.isnan(price.low):  # no model fits
        direction = "less" if price.value > 0.0 else "more"
        return f"earn {money(answer, abs(price.value))} {direction}, if it is nearly right"
    if price.low > 0.0:
        return f"earn {money_range(answer, price)} less"
    if price.high < 0.0:
        gain = Interval(-price.value, -price.high, -price.low)
        return f"earn {money_range(answer, gain)} more"
    return f"earn about as much (the difference is {money_range(answer, price)})"


def capital(text: str) -> str:
    """Return a text with a capital letter."""
    return text[0].upper() + text[1:]
