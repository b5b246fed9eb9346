"""The one file of words: what is the case, as sentences for a person.

An :class:`~occamrl.answers.answer.Answer` knows what is the case; here it becomes English. A
sentence has a kind, by which pages and printed answers put it in its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from occamrl.evidence.simulator_worlds import SimulatorWorlds, unseen
from occamrl.naming import describe_states, printable, printable_name, quoted, spoken
from occamrl.protocols import (
    DoubtfulPair,
    ErrorMisfit,
    Interval,
    Known,
    Misfit,
    OutcomeMisfit,
    ParameterRange,
)

if TYPE_CHECKING:
    from occamrl.answers.answer import Answer
    from occamrl.answers.today import Today

Kind = Literal["which", "what to do", "worth", "matter", "try", "next", "assumed"]

QUESTIONS: dict[Kind, str] = {
    "which": "Which model?",
    "what to do": "What to do?",
    "worth": "What is it worth?",
    "matter": "Does it matter?",
    "try": "What might be better?",
    "next": "What next?",
    "assumed": "What was assumed?",
}

_LABELS = {"next": "Next", "what to do": "What to do"}
_MOST_NAMED = 8  # things that a sentence lists
_MISFITS_NAMED = 3
_CLOSE = 0.1  # the share of a worth within which two policies do about as well
_RESTS_ON_UNTRIED = 0.1  # the share of steps in untried pairs from which on one is warned
_HARDLY = math.log(2.0)  # nats below which nothing speaks against a class
_SLIGHT = 0.1  # standard deviations below which an error of a mean is not described
_BILLION = math.log(1e9)
_TINY = 1e-6  # numbers below which are written with an exponent
_EQUAL = 1e-9  # the share of an amount below which two amounts are equal
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
)  # fmt: skip
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Sentence(NamedTuple):
    """A sentence, and what it is about; what to do and what next begin with small letters."""

    kind: Kind
    text: str
    label: str = ""  # before it, in place of that of its kind

    def printable(self) -> Sentence:
        """Return it without anything that steers a terminal, whatever names are in it."""
        return self._replace(text=printable(self.text))

    def __str__(self) -> str:
        if self.kind in ("next", "what to do"):
            return f"{self.label or _LABELS[self.kind]}: {self.text}"
        return self.text


# Numbers and lists --------------------------------------------------------------------------------


def format_number(number: float, places: int | None = None) -> str:
    """Return a number with so many decimals; by default with three digits that count.

    There is no exponent but for numbers below a millionth, and no minus zero.

    >>> from occamrl.answers.wording import format_number
    >>> format_number(15_800.0), format_number(0.05317), format_number(46.0, 1)
    ('15,800', '0.0532', '46.0')
    """
    if not math.isfinite(number):
        return str(number)
    if places is None:
        rounded = float(f"{number:.3g}") + 0.0
        if 0.0 < abs(rounded) < _TINY:
            return f"{rounded:.3g}"
        digits = max(0, 2 - _magnitude(rounded))
        text = f"{rounded:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{round(number, places) + 0.0:,.{max(0, places)}f}"


def _magnitude(number: float) -> int:
    """Return the power of ten of the first digit that counts; of zero 0."""
    return math.floor(math.log10(abs(number))) if number else 0


def places_of(interval: Interval) -> int | None:
    """Return how many decimals show a range with three digits; None for a range without width."""
    width = interval.high - interval.low
    size = max(abs(interval.low), abs(interval.high))
    if not width > _EQUAL * size:
        return None
    return 2 - _magnitude(width)


def format_range(interval: Interval) -> str:
    """Return a best guess with its range, three digits of whose width are shown.

    >>> from occamrl.answers.wording import format_range
    >>> from occamrl.protocols import Interval
    >>> format_range(Interval(63.204, 45.98, 81.19)), format_range(Interval(0.25, 0.25, 0.25))
    ('63.2 (46.0 to 81.2)', '0.25')
    """
    places = places_of(interval)
    if places is None:
        return format_number(interval.value)
    low = format_number(interval.low, places)
    return (
        f"{format_number(interval.value, places)} ({low} to {format_number(interval.high, places)})"
    )


def format_pieces(parameter: ParameterRange) -> str:
    """Return the best guess of a parameter with the pieces of its range.

    >>> from occamrl.answers.wording import format_pieces
    >>> from occamrl.protocols import ParameterRange
    >>> format_pieces(ParameterRange(0.2, ((0.1, 0.3), (0.7, 0.9))))
    '0.200 (0.100 to 0.300 or 0.700 to 0.900)'
    """
    places = places_of(parameter.interval)
    if places is None:
        return format_number(parameter.value)
    pieces = []
    for low, high in parameter.pieces:
        pieces.append(f"{format_number(low, places)} to {format_number(high, places)}")
    return f"{format_number(parameter.value, places)} ({' or '.join(pieces)})"


def points(share: float) -> str:
    """Return a share as points of a hundred: "0.5 points".

    >>> from occamrl.answers.wording import points
    >>> points(0.005), points(0.01), points(0.125)
    ('0.5 points', '1 point', '12.5 points')
    """
    number = format_number(100.0 * share)
    return f"{number} point" if number == "1" else f"{number} points"


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


def listed(names: Sequence[str], last: str = "and") -> str:
    """Return names as a list in a sentence, cut after a few."""
    if not names:
        return "none"
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:_MOST_NAMED])} {last} {len(names) - _MOST_NAMED} more"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def times(nats: float) -> str:
    """Return how many times less likely that many nats are, in words where the number is long."""
    if nats > _BILLION:
        return "over a billion"
    return format_number(math.exp(max(nats, 0.0)))


# The answer ---------------------------------------------------------------------------------------


def sentences_of(answer: Answer) -> list[Sentence]:
    """Return the answer for a person to read, in the order in which it is printed."""
    return [sentence.printable() for sentence in _sentences(answer)]


def _sentences(answer: Answer) -> list[Sentence]:
    if not answer.steps:
        return [Sentence("which", "Nothing has been observed yet.")]
    if answer.ladder.kind == "dynamics":
        from occamrl.answers.dynamics import dynamics_sentences  # which speaks in sentences, too

        return dynamics_sentences(answer)
    sentences = which_model(answer)
    if answer.forgives:
        from occamrl.answers import tolerance  # which speaks in sentences, too

        if answer.misspecified:
            sentences += tolerance.where_nothing_fits(answer)
            return [*sentences, *what_was_assumed(answer)]
        sentences += tolerance.doubts(answer)
    # what a model that is ruled out recommends is not said
    if answer.valued and answer.worlds.exact and not answer.misspecified:
        sentences += [
            *what_to_do(answer, _advice(answer)),
            *what_it_is_worth(answer),
            *does_it_matter(answer),
            *what_to_try(answer),
        ]
    return [*sentences, *what_next(answer), *what_was_earned(answer), *what_was_assumed(answer)]


def lines_of(sentences: Sequence[Sentence]) -> list[str]:
    """Return the lines of a printed answer; what was assumed comes last, under its title."""
    lines = [str(sentence) for sentence in sentences if sentence.kind != "assumed"]
    assumed = [f"- {sentence}" for sentence in sentences if sentence.kind == "assumed"]
    if assumed:
        lines += ["What was assumed:", *assumed]
    return lines


def headline(answer: Answer) -> str:
    """Return the answer in one sentence."""
    return printable(_headline(answer))


def _headline(answer: Answer) -> str:
    if answer.ladder.kind == "dynamics":
        from occamrl.answers.dynamics import dynamics_headline  # which speaks in sentences, too

        return dynamics_headline(answer)
    if not answer.steps:
        return "Nothing has been observed yet."
    if answer.misspecified:
        return f"None of your {_nouns(answer)} fits the data."
    which = _verdict(answer)
    if answer.status == "not enough data" or not (answer.valued and answer.worlds.exact):
        return f"{which}."
    headline = (
        f"{which}; its policy {earns(answer, answer.worth.value)} per {answer.labels.episode}"
    )
    gain = answer.gain
    if gain is None:
        return f"{headline}."
    if answer.negligible(gain):
        return f"{headline}, about as much as today's."
    if gain.low <= 0.0:
        return f"{headline}; the data do not show yet that this is better than today's."
    return f"{headline}, {compared(answer, gain.value)} than today's."


def _nouns(answer: Answer) -> str:
    return "simulators" if answer.ladder.kind == "simulators" else "models"


# Money --------------------------------------------------------------------------------------------


def unit_of(answer: Answer) -> str:
    """Return what amounts are counted in, as a sentence says it."""
    return printable_name(answer.known.unit_name)


def money(answer: Answer, amount: float) -> str:
    """Return an amount in the user's unit."""
    return f"{format_number(amount)} {unit_of(answer)}".rstrip()


def money_range(answer: Answer, amount: Interval) -> str:
    """Return an amount with its range."""
    unit = unit_of(answer)
    if math.isnan(amount.low):
        return f"{money(answer, amount.value)} (no range: no model fits)"
    places = places_of(amount)
    if places is None:  # one model is left
        return money(answer, amount.value)
    value = f"{format_number(amount.value, places)} {unit}".rstrip()
    low = format_number(amount.low, places)
    return f"{value} ({low} to {format_number(amount.high, places)})"


def _reversed(amount: Interval) -> Interval:
    return Interval(-amount.value, -amount.high, -amount.low)


def earns(answer: Answer, amount: Interval | float, ending: str = "s") -> str:
    """Return "earns 8 EUR"; what is negative for certain costs something."""
    if isinstance(amount, Interval):
        if amount.value < 0.0 and not amount.high > 0.0:
            return f"cost{ending} {money_range(answer, _reversed(amount))}"
        return f"earn{ending} {money_range(answer, amount)}"
    if amount < 0.0:
        return f"cost{ending} {money(answer, -amount)}"
    return f"earn{ending} {money(answer, amount)}"


def earned_or_cost(amount: float) -> str:
    """Return what an amount of the past was, which is then told without its sign."""
    return "cost" if amount < 0.0 else "earned"


def compared(answer: Answer, difference: Interval | float) -> str:
    """Return "8 EUR more", or "less"; where both of what is compared cost something, turned."""
    costs = answer.worth.value < 0.0
    size = difference.value if isinstance(difference, Interval) else difference
    direction = "less" if (size < 0.0) != costs else "more"
    if not isinstance(difference, Interval):
        return f"{money(answer, abs(size))} {direction}"
    if size < 0.0:
        difference = _reversed(difference)
    return f"{money_range(answer, difference)} {direction}"


# Which model --------------------------------------------------------------------------------------


def which_model(answer: Answer) -> list[Sentence]:
    """Say which model the data need, what they rule out, and where they have been."""
    if answer.misspecified:
        texts = _no_model_fits(answer)
    else:
        texts = [
            _which(answer),
            *_parameters(answer),
            *_at_bounds(answer),
            *_members_left(answer),
            *_ruled_out(answer),
            *_level(answer),
            *_how_much_more(answer),
        ]
    return [Sentence("which", text) for text in texts]


def _verdict(answer: Answer) -> str:
    """Return what the data say of the class chosen, without a full stop."""
    name = quoted(answer.model)
    if answer.status == "at least":
        return f"At least {name} is needed"
    if answer.status == "enough so far":
        return f"{name} is enough so far"
    if answer.status == "not enough data":
        return f"The data are not enough to tell ({count_of(answer.steps, 'step')})"
    if len(answer.ladder.names) == 1:
        return f"{name} fits the data so far"
    if answer.chosen == 1:
        return f"{name} is enough"
    return f"{name} is needed"


def _which(answer: Answer) -> str:
    """Return the first sentence: what is needed, or enough, and what that rests on."""
    names = answer.ladder.names
    noun = "class" if answer.ladder.kind == "simulators" else "model"
    where = position(answer.chosen, len(names), noun)
    verdict = _verdict(answer)
    name = quoted(answer.model)
    if answer.status == "not enough data":
        if len(names) == 1:
            return f"{verdict}: they rule out hardly anything that {name}, {where}, allows."
        looked = f"less than half of what {quoted(answer.next_class)} adds is ruled out"
        simplest = f"{name} ({where}) is the simplest {noun} that is left"
        return f"{verdict}: {simplest}, and {looked}."
    verdict = f"{verdict} ({where})"
    if answer.status == "enough so far":
        against = _what_speaks_against(answer)
        if answer.chosen > 1:
            against = f"those before it are ruled out, {against}"
        if answer.looked is None:
            unknown = "how much of larger classes the data rule out is not known"
            return f"{verdict}: {against}; {unknown}."
        return (
            f"{verdict}: {against}, and the data rule out at least half of what "
            f"{quoted(answer.next_class)} adds."
        )
    if len(names) == 1:
        return f"{verdict}."
    if answer.status == "at least":
        return f"{verdict}: everything smaller is ruled out, larger ones are possible."
    if answer.chosen == 1:
        return f"{verdict}: all that is left of the others is in it."
    if answer.ladder.nested and answer.chosen == len(names):
        return f"{verdict}: everything smaller is ruled out."
    return f"{verdict}: nothing else is left."


def _what_speaks_against(answer: Answer) -> str:
    """Say how much speaks against the class chosen, which is not ruled out."""
    nats = float(answer.judgement.against[answer.chosen - 1])
    if nats < _HARDLY:
        return "nothing in the data speaks against it"
    if answer.evidence == "value":
        return "it is not ruled out"
    limit = f"the limit is {1.0 / answer.delta:,.0f} times"
    return f"it is not ruled out, though the data speak against it {times(nats)} to 1 ({limit})"


def _parameters(answer: Answer) -> list[str]:
    """Say the parameters of the class chosen, if it is right."""
    if answer.ladder.kind == "simulators":  # whose most plausible one has its own sentence
        return []
    values = []
    for name, parameter in answer.class_parameters.get(answer.model or "", {}).items():
        values.append(f"{name} is {format_pieces(parameter)}")
    if not values:
        return []
    return [f"If {quoted(answer.model)} is right, {listed(values)}."]


def _how_much_more(answer: Answer) -> list[str]:
    """Say about how many more episodes would tell more, where that can be told."""
    texts = []
    more = answer.more
    if more is not None and math.isfinite(more.half):
        episodes = count_of(round(more.half), f"more such {answer.labels.episode}")
        texts.append(f"About {episodes} would rule out half of what is left of richer models.")
    if more is not None and more.never:
        verb = "predicts" if more.never == 1 else "predict"
        same = f"{count_of(more.never, 'richer model')} {verb} the same at every step"
        texts.append(f"{same} of such a log: only other data can tell.")
    if more is None and answer.status == "not enough data" and answer.more_for_half is not None:
        episodes = count_of(answer.more_for_half, f"more such {answer.counted_in}")
        texts.append(
            f"If the ranges keep shrinking as they should, about {episodes} would be enough."
        )
    return texts


def _no_model_fits(answer: Answer) -> list[str]:
    names = answer.ladder.names
    nouns = _nouns(answer)
    verdict = f"None of your {nouns} fits the data"
    if answer.tolerance:
        verdict += f", even if every step may be off by {points(answer.tolerance)}"
    texts = [f"{verdict}: even {quoted(names[-1])} is ruled out."]
    if not answer.ladder.nested:
        texts = [f"{verdict}: all are ruled out."]
    judgement = answer.judgement
    if judgement.blends:
        blended = names[judgement.blends[0] - 1]
        fit = f"Blends of the {quoted(blended)} models fit"
        texts.append(f"{fit}: the truth seems to lie between your values.")
    if judgement.novel:
        verb = "is a transition" if judgement.novel == 1 else "are transitions"
        steps = f"{count_of(judgement.novel, 'step')} {verb} that every model calls impossible."
        texts.append(steps)
    if answer.ladder.kind != "simulators":
        texts += estimates(answer.ladder.draws)
    if answer.most_plausible:
        texts.append(f"The most plausible is {answer.most_plausible}.")
    for misfit in answer.raw_misfits[:_MISFITS_NAMED]:
        # where evidence is spread over all pairs, single ones show no more than chance
        if not isinstance(misfit, OutcomeMisfit) or misfit.nats > answer.threshold:
            texts.append(misfit_sentence(misfit))
    if answer.ladder.kind == "simulators":
        texts.append("Until you have a better one, plan with the most plausible.")
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
        if misfit.step is not None:
            where = f"at step {misfit.step} {where}"
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

    if misfit.deviations < _SLIGHT:
        return "Its mean errs by less than a tenth of a standard deviation: its noise may be wrong."
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
    parameters = answer.class_parameters.get(answer.model or "", {})
    for name in answer.at_bounds:
        value = format_number(parameters[name].value)
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
        texts.append(f"{quoted(name)} was ruled out{after}: {_why_ruled_out(answer, worse)}.")
    return texts


def _why_ruled_out(answer: Answer, worse: float) -> str:
    by_bets = answer.evidence == "exchangeability" or answer.tolerance > 0.0
    if answer.evidence == "value":
        return "it predicts the value of next states too badly"
    if math.isinf(worse):
        return "it calls impossible what was seen"
    limit = f"the limit is {1.0 / answer.delta:,.0f} times"
    if by_bets:
        return f"bets against it have won {times(math.log(worse))} times their stake ({limit})"
    how_much = f"{times(math.log(worse))} times worse than the best explanation"
    return f"by now it explains the data {how_much} ({limit})"


# What to do, what it is worth, whether it matters -------------------------------------------------


def what_to_do(answer: Answer, advice: str) -> list[Sentence]:
    """Say what the recommended policy does: what to do, if the advice is to use or to try it."""
    policy = answer.policy
    texts = [f"{policy.brief}."]
    left_out = policy.left_out
    if left_out.size:
        where = "that this policy never reaches"
        if answer.tolerance:
            where = "that, by the models as they are, this policy never reaches"
        if answer.log is not None:
            pairs = answer.log.pairs
            share = float(pairs[left_out].sum() / pairs.sum())
            where += f" ({percent(share)} of the log)"
        texts.append(f"Not listed: {count_of(left_out.size, 'state')} {where}.")
    label = "" if advice.startswith(("use", "try")) else "What looks best so far"
    return [Sentence("what to do", " ".join(texts), label)]


def what_it_is_worth(answer: Answer) -> list[Sentence]:
    """Say what the policy is worth."""
    worth = earns(answer, answer.worth)
    return [Sentence("worth", f"The recommended policy {worth} per {answer.labels.episode}.")]


def does_it_matter(answer: Answer) -> list[Sentence]:
    """Say what it is worth against today's and against those of simpler models."""
    texts = []
    gain = answer.gain
    if gain is not None:
        outcome = f"It earns {compared(answer, gain)} than today's."
        if answer.worth.value < 0.0:
            outcome = f"It costs {compared(answer, gain)} than today's."
        if answer.negligible(gain):
            outcome = "It earns about as much as today's."
        texts += [outcome, *_log_and_models(answer)]
    if answer.tolerance:
        from occamrl.answers.tolerance import up_to_where  # which speaks in sentences, too

        texts += [sentence.text for sentence in up_to_where(answer)]
    for name, loss in answer.price_of_simplicity.items():
        texts.append(f"The best policy of {quoted(name)} would {_loss(answer, loss)}.")
    return [Sentence("matter", text) for text in texts]


def what_to_try(answer: Answer) -> list[Sentence]:
    """Say what the recommended policy does not do and might be better, where its worth is wide."""
    if answer.misspecified or answer.sure_of_worth:
        return []
    if not answer.doubtful and answer.tolerance:
        return []  # what may be better within the tolerance was not looked for
    if not answer.doubtful:
        text = "In every model that is left, as far as was searched, no other policy is better."
        return [Sentence("try", text)]
    pairs = []
    for pair in answer.doubtful:
        pairs.append(pair_in_words(answer, pair))
    text = f"In some model that is left, this might be better: {listed(pairs, 'or')}."
    return [Sentence("try", text)]


def _log_and_models(answer: Answer) -> list[str]:
    """Say what the log earned, and what the models say of the policy that made it."""
    if answer.tolerance:  # what the log earned is compared with as it is
        return []
    luck = answer.luck
    today = answer.today_worth
    if luck is None or today is None or answer.log is None or answer.log.mean_return is None:
        return []
    mean = answer.log.mean_return
    verb = "earned"
    verb_now = "earns"
    if today.high < 0.0 and mean < 0.0:
        verb = "cost"
        verb_now = "costs"
        mean = -mean
        today = _reversed(today)
    earned = f"Today's policy {verb} {money(answer, mean)} per {answer.labels.episode} in the log"
    says = f"by the models that are left it {verb_now} {money_range(answer, today)}"
    if luck.low > 0.0 or luck.high < 0.0:
        return [
            f"Warning: {earned}, and {says}. That differs by more than chance: check the rewards "
            "of your models, or look for reasons behind the actions that the log does not show."
        ]
    return [f"{earned}; {says}."]


def pair_in_words(answer: Answer, pair: DoubtfulPair) -> str:
    """Return "order 6 when stock is 1", or "action 6 in state 1"."""
    action = spoken(pair.action)
    if not isinstance(pair.action, str):
        action = f"{answer.labels.action or 'action'} {action}"
    if answer.labels.state:
        return f"{action} when {describe_states([pair.state], answer.labels.state)}"
    return f"{action} in state {spoken(pair.state)}"


# What next ----------------------------------------------------------------------------------------


def what_next(answer: Answer) -> list[Sentence]:
    """Say what to do next."""
    if answer.misspecified:
        advice = advice_misspecified(answer)
        if answer.log is not None:
            advice = f"keep today's policy, and {advice}"
        return [Sentence("next", advice)]
    return [Sentence("next", _advice(answer))]


def _advice(answer: Answer) -> str:
    """Return an advice: to use a policy only where the data are sure that this is right."""
    if not answer.valued:
        reason = answer.why_not_valued.removeprefix("no worth and no policy: ")
        return f"nothing can be recommended yet, as {reason}."
    if not answer.worlds.exact:
        return (
            "plan with what is left, and look at what it earns: "
            "answer.worth says what the planner is worth in these simulators."
        )
    gain = answer.gain
    if gain is None and answer.log is not None:
        return "keep today's policy while you collect more data: what it earns is not known yet."
    if gain is None:
        return _advice_without_a_log(answer)
    if answer.negligible(gain):
        return "keep today's policy: this one earns about the same."
    if answer.tolerance and gain.low > 0.0 and answer.too_far_off:
        return (
            "keep today's policy, and add a richer class: this one is better within the tolerance, "
            "which seems to be too small."
        )
    if gain.low > 0.0:
        strange = answer.tolerance > 0.0 and answer.judgement.novel > 0
        if strange or any(note.guarantee == "void" for note in answer.notes):
            return (
                "try it, and watch what happens: it is better in every model that is left, but "
                "with these data nothing is guaranteed."
            )
        if answer.untried_actions_taken or answer.untried_share > _RESTS_ON_UNTRIED:
            return (
                "try it, and watch what happens: it is better in every model that is left, but "
                "this rests on what they say about what the log never tried."
            )
        searched = ", as far as was searched," if answer.ladder.box else ""
        return f"use it: in every model that is left{searched} it is better than today's."
    unsure = answer.status == "not enough data" or gain.value <= -gain.low
    if gain.high <= 0.0 or unsure:
        return "keep today's policy while you collect more data: this one may be worse."
    return (
        "try it for a while, and collect more data: by the best guess it is better than today's, "
        "but that is not certain yet."
    )


def _advice_without_a_log(answer: Answer) -> str:
    """Return an advice where nothing is known of another policy."""
    if answer.changed:
        return "collect more data before you rely on it: the class changed lately."
    if answer.status == "not enough data" or not answer.sure_of_worth:
        return "collect more data before you rely on it: how much it earns is not certain yet."
    return "use it: how much it earns is known to within a tenth."


def advice_misspecified(answer: Answer) -> str:
    """Return what to change in models none of which fits."""
    if answer.judgement.blends:
        return "list finer values, or fit real parameters (orl.Model)."
    if answer.judgement.novel:
        return (
            "change your models so that they allow what happened; "
            "or look for a variable that is missing from the state."
        )
    if answer.ladder.kind == "list":
        # nothing tells whether values between those listed would do
        return (
            "fit real parameters (orl.Model): finer values may do. "
            "If not, a variable may be missing."
        )
    if answer.ladder.kind == "simulators":
        misfits = answer.raw_misfits
        if misfits and isinstance(misfits[0], ErrorMisfit) and misfits[0].wider is not None:
            return "list simulators with other noise: the mean of this one fits."
        return "add what is missing as a richer class, or list finer values of the parameters."
    return "add a richer class, or look for a variable that is missing from the state."


def what_was_earned(answer: Answer) -> list[Sentence]:
    """Say what the last episodes of a controller earned, and whether rewards are as promised."""
    if not len(answer.returns):
        return []
    lately = answer.returns[-max(1, len(answer.returns) // 4) :]
    mean = sum(lately) / len(lately)
    amount = f"{earned_or_cost(mean)} {money(answer, abs(mean))}"
    texts = [f"The last episode {amount}."]
    if len(lately) > 1:
        texts = [f"Each of the last {len(lately):,} episodes {amount} on average."]
    if answer.reward_error > 1e-6 * max(1.0, *(abs(earned) for earned in answer.returns)):
        error = f"{answer.reward_error:.3g} per step on average"
        texts.append(f"The rewards that came differ from the ladder's reward by {error}.")
    return [Sentence("matter", text) for text in texts]


# What was assumed ---------------------------------------------------------------------------------


def what_was_assumed(answer: Answer) -> list[Sentence]:
    """Say what all that rests on."""
    from occamrl.answers.assumed import data_sentences  # which speaks in sentences, too

    nouns = _nouns(answer)
    texts = []
    if not answer.misspecified and all(note.guarantee != "void" for note in answer.notes):
        right = "is right"
        if answer.tolerance:
            right = (
                f"is off by at most {points(answer.tolerance)} at every step, among the outcomes "
                "that it lists"
            )
        texts.append(
            f"One of your {nouns} {right}. If so, the smallest class that holds it is kept, and "
            f"every range holds the truth, with probability at least {1.0 - answer.delta:g}."
        )
    rewards = ""
    if isinstance(answer.known, Known) and answer.known.rewards_known:
        rewards = ", rewards are those of the models"
    what = "the state and the action"
    if answer.ladder.by_step:
        what = "the step, the state and the action"
    texts.append(
        f"What comes next depends on {what} alone{rewards}, and actions were "
        "chosen by what the data show, for no hidden reason."
    )
    if isinstance(answer.known, Known) and answer.log is not None and not answer.misspecified:
        texts += _assumed_of_a_log(answer, answer.known, answer.log)
    return [*(Sentence("assumed", text) for text in texts), *data_sentences(answer)]


def _assumed_of_a_log(answer: Answer, known: Known, log: Today) -> list[str]:
    """Say where a log has been, and what was assumed of the policy that made it."""
    pairs = log.pairs
    allowed = known.allowed & ~known.absorbing[:, None]
    states = int(pairs.any(axis=1).sum())
    possible = int(allowed.any(axis=1).sum())
    tried = int((pairs > 0.0).sum())
    apart = ""
    if answer.ladder.by_step and answer.valued:
        met = answer.policy.possible[:, :, None] & allowed
        tried_then = int((log.pairs_by_step[met] > 0.0).sum())
        apart = f" ({tried_then:,} of {int(met.sum()):,} if steps are told apart)"
    texts = [
        f"The log has been in {states:,} of {count_of(possible, 'state')}, and has tried "
        f"{tried:,} of {count_of(int(allowed.sum()), 'pair')} of a state and an action{apart}."
    ]
    never = np.flatnonzero(allowed.any(axis=0) & ~pairs.any(axis=0)).tolist()
    names = [spoken(known.action_name(a)) for a in never]
    if not (answer.valued and answer.worlds.exact):
        if names:
            texts.append(f"It never shows {_actions(answer, names)}.")
        return texts
    taken = [spoken(name) for name in answer.untried_actions_taken]
    spared = [name for name in names if name not in taken]
    never_shows = "It never shows {}, which the recommended policy "
    if taken:
        texts.append(
            never_shows.format(_actions(answer, taken)) + "takes: what follows is what your models "
            "say, and nothing in the log has tested that."
        )
    if spared:
        texts.append(never_shows.format(_actions(answer, spared)) + "does not take.")
    share = answer.untried_share
    if share > 0.0:
        where = "in that state"
        others = "other states and actions"
        if answer.ladder.by_step:
            where = "in that state at that step"
            others = "other steps, states and actions"
        example = pair_in_words(answer, answer.most_untried)
        texts.append(
            f"In {percent(share)} of its steps the recommended policy does what the log never "
            f"tried {where}, above all {example}: there it rests on what the models infer from "
            f"{others}."
        )
    number = sum(log.episodes)
    if answer.gain is not None:
        episodes = f"these {count_of(number, answer.labels.episode)}"
        if number == 1:
            episodes = f"this one {answer.labels.episode}"
        texts.append(
            f"Today's policy is what was done in {episodes}; the range of the comparison with it "
            "allows for chance among them, and is wrong about as rarely as the others."
        )
    return texts


def _actions(answer: Answer, names: Sequence[str]) -> str:
    noun = answer.labels.action or "action"
    return listed([f"{noun} {name}" for name in names])


def percent(share: float) -> str:
    """Return a share in per cent, never rounded to nothing or to all."""
    if 0.0 < share < 0.01:
        return "less than 1 %"
    if 0.99 < share < 1.0:
        return "over 99 %"
    return f"{100 * share:.0f} %"


# Questions ----------------------------------------------------------------------------------------


def questions_of(answer: Answer) -> dict[str, list[str]]:
    """Return the answer as lines to the questions that a person asks."""
    if not answer.steps:
        return {}
    if answer.ladder.kind == "simulators":
        sentences = [
            *which_model(answer),
            *simulated(answer),
            *what_next(answer),
            *what_was_earned(answer),
            *what_was_assumed(answer),
        ]
        sentences = [sentence.printable() for sentence in sentences]
    else:
        sentences = list(answer.said)
    return by_question(sentences, QUESTIONS)


def by_question(
    sentences: Sequence[Sentence], questions: Mapping[Kind, str]
) -> dict[str, list[str]]:
    """Return the texts of sentences by the questions that they answer."""
    asked: dict[str, list[str]] = {}
    for kind, question in questions.items():
        texts = [capital(sentence.text) for sentence in sentences if sentence.kind == kind]
        if texts:
            asked[question] = texts
    return asked


def simulated(answer: Answer) -> list[Sentence]:
    """Return what a planner in simulators does, earns, and would lose in simpler ones."""
    plan = f"Plan with {answer.most_plausible}"
    if not answer.misspecified:
        plan = f"Plan with {answer.worlds.some(1)[0].label}, the most plausible that is left"
    sentences = [Sentence("what to do", f"{plan}, anew at every step.")]
    if not answer.runs:
        return sentences
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
    worth = earns(answer, answer.value)
    if not answer.misspecified:
        worth = earns(answer, answer.worth)
    earned = f"The planner {worth} per {answer.labels.episode}, {where}."
    sentences.append(Sentence("worth", earned))
    sentences.append(Sentence("worth", _rests_on(answer)))
    for name, price in answer.price_of_simplicity.items():
        loss = f"Planning with {quoted(name)} alone would {_loss(answer, price)}."
        sentences.append(Sentence("matter", loss))
    return sentences


def _rests_on(answer: Answer) -> str:
    """Say on how many simulated episodes a worth rests, and what may not be among them."""
    worlds = answer.worlds
    assert isinstance(worlds, SimulatorWorlds)  # noqa: S101  # of a ladder of this kind
    rests = f"That rests on {count_of(answer.runs, 'simulated episode')} in each"
    if worlds.system.returns is not None:
        low, high = worlds.system.returns
        return (
            f"{rests}, and on every episode earning {format_number(low)} to {money(answer, high)}."
        )
    share = f"at most {100.0 * unseen(answer.runs):.2g} % of episodes"
    worst = money(answer, worlds.worst(answer.policy))
    return (
        f"{rests}, as if what they earn were nearly normal; in any case {share} earn less than "
        f"the worst of them, {worst} (chance of error 0.05)."
    )


def _loss(answer: Answer, price: Interval) -> str:
    """Say what a policy loses."""
    verb = "cost" if answer.worth.value < 0.0 else "earn"
    if math.isnan(price.low):  # no model fits
        return f"{verb} {compared(answer, -price.value)}, if it is nearly right"
    if answer.negligible(price):
        return "do as well"
    most = max(-price.low, price.high)
    if price.low <= 0.0 <= price.high and most <= _CLOSE * abs(answer.worth.value):
        return f"do about as well, to within {money(answer, most)}"
    return f"{verb} {compared(answer, _reversed(price))}"


def capital(text: str) -> str:
    """Return a text with a capital letter."""
    return text[0].upper() + text[1:]
