"""Words, and sections of a page, about classes of dynamics with fitted parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from occamrl.answers.assumed import data_sentences
from occamrl.answers.html import paragraphs, picture, table
from occamrl.answers.wording import (
    Kind,
    Sentence,
    count_of,
    format_number,
    format_pieces,
    listed,
    what_was_earned,
)
from occamrl.evidence.regression import RegressionEvidence, RegressionState
from occamrl.evidence.regression_report import Hint, LaterErrors, Quality, hints_of, quality_of
from occamrl.models.dynamics import GreyBox, Rival
from occamrl.naming import quoted

if TYPE_CHECKING:
    from occamrl.answers.answer import Answer


_AT_BOUND = 1e-6  # the share of a box from an end of it


def _weigher(answer: Answer) -> tuple[RegressionEvidence, RegressionState]:
    weigher = answer.weigher
    assert isinstance(weigher, RegressionEvidence)  # noqa: S101  # of a ladder of this kind
    return weigher, answer.state


def errors_of(answer: Answer) -> Quality | None:
    """Return how well classes predict later data; None where there are too few."""
    weigher, state = _weigher(answer)
    return quality_of(weigher, state, answer.chosen - 1)


def dynamics_headline(answer: Answer) -> str:
    """Return the answer in one sentence."""
    if not answer.steps:
        return "Nothing has been observed yet."
    if answer.misspecified:
        return "None of your classes explains the data."
    if _is_rival(answer):
        if answer.chosen == 1:
            return f"{quoted(answer.model)} comes first, and no test rules it out."
        return f"Every class before {quoted(answer.model)} is ruled out; no test rules that out."
    if answer.status == "not enough data":
        return f"The data are not enough to tell ({count_of(answer.steps, 'step')})."
    if answer.status == "at least":
        return f"At least {quoted(answer.model)} is needed."
    return f"{quoted(answer.model)} is enough so far, where the data have been."


def dynamics_sentences(answer: Answer) -> list[Sentence]:
    """Return the answer for a person to read."""
    if not answer.steps:
        return [Sentence("which", "Nothing has been observed yet.")]
    sentences = [Sentence("which", text) for text in _which(answer)]
    sentences += [Sentence("matter", text) for text in _errors(answer)]
    sentences += [Sentence("matter", text) for text in _hints(answer)]
    sentences.append(Sentence("next", _advice(answer)))
    sentences += what_was_earned(answer)
    assumed: list[Sentence] = [Sentence("assumed", text) for text in _assumed(answer)]
    return [*sentences, *assumed, *data_sentences(answer)]


def _is_rival(answer: Answer) -> bool:
    weigher, _ = _weigher(answer)
    return isinstance(weigher.ladder.classes[answer.chosen - 1], Rival)


def _which(answer: Answer) -> list[str]:
    """Say which class is enough, where that was looked at, and what is ruled out."""
    names = answer.ladder.names
    where = f"where the data have been: {_visited(answer)} ({count_of(answer.steps, 'step')})"
    if answer.misspecified:
        texts = [f"None of your classes explains the data: even {quoted(names[-1])} is ruled out."]
    elif _is_rival(answer):
        name = quoted(answer.model)
        texts = [f"{name} is left, {where}. No test can rule it out, as it has no equations."]
    elif answer.status == "not enough data":
        simplest = f"{quoted(answer.model)} is the simplest class that is left"
        looked = f"less than half of what {quoted(answer.next_class)} adds is ruled out"
        texts = [f"The data are not enough to tell: {simplest}, and {looked}, {where}."]
    elif answer.status == "at least":
        enough = "it is enough so far"
        if answer.barely_looked:
            enough = f"less than half of what {quoted(answer.next_class)} adds is ruled out"
        texts = [f"At least {quoted(answer.model)} is needed, and {enough}, {where}."]
    else:
        texts = [f"{quoted(answer.model)} is enough so far, {where}."]
    texts += [*_parameters(answer), *_flat(answer), *_ruled_out(answer)]
    return texts


def _visited(answer: Answer) -> str:
    """Return the range of every coordinate and action."""
    weigher, state = _weigher(answer)
    steps = weigher.seen(state)
    ranges = []
    for name, values in zip(
        weigher.ladder.inputs, np.hstack([steps.states, steps.actions]).T, strict=True
    ):
        low = format_number(float(values.min()))
        ranges.append(f"{name} from {low} to {format_number(float(values.max()))}")
    return listed(ranges)


def _parameters(answer: Answer) -> list[str]:
    """Say what the parameters are, if the class is right, and which are at their bounds."""
    if answer.misspecified or not answer.class_parameters[answer.model or ""]:
        return []
    values = []
    bounds = []
    for name, parameter in answer.class_parameters[answer.model or ""].items():
        values.append(f"{name} {format_pieces(parameter)}")
        low, high = answer.ladder.box.get(name, (-math.inf, math.inf))
        # A bound at zero is where a simpler class is: it needs no widening.
        margin = _AT_BOUND * (high - low) if math.isfinite(high) else 0.0
        at_bound = min(parameter.value - low, high - parameter.value) <= margin
        if at_bound and abs(parameter.value) > margin:
            at = format_number(parameter.value)
            bounds.append(f"The best {name} is at the bound that you gave it, {at}.")
    return [f"If it is right: {listed(values)}.", *bounds]


def _flat(answer: Answer) -> list[str]:
    """Say which parameters have no value of their own."""
    if answer.misspecified:
        return []
    weigher, state = _weigher(answer)
    texts = []
    for names, shape in weigher.flat(state, answer.chosen - 1):
        if len(names) == 1:
            texts.append(f"The data say hardly anything about {names[0]}.")
        elif shape:
            texts.append(f"Of {listed(names)} only {shape} is identified.")
        else:
            texts.append(f"Of {listed(names)} only a combination is identified.")
    return texts


def _ruled_out(answer: Answer) -> list[str]:
    weigher, _ = _weigher(answer)
    judgement = answer.judgement
    texts = []
    for m, name in enumerate(answer.ladder.names):
        when = judgement.rejected_after[m]
        if when is None:
            continue
        text = f"{quoted(name)} was ruled out after {count_of(when, 'step')}"
        if isinstance(weigher.ladder.classes[m], GreyBox) and judgement.search is not None:
            text += ", as far as parameters were searched"
        texts.append(f"{text}.")
    if not texts and len(answer.ladder.names) > 1 and answer.status != "not enough data":
        texts.append("It is the simplest, and nothing is ruled out.")
    return texts


def _errors(answer: Answer) -> list[str]:
    """Say how well later data are predicted, and whether that is good enough."""
    quality = answer.later_errors
    if quality is None:
        return []
    weigher, _ = _weigher(answer)
    chosen = quality.classes[answer.chosen - 1]
    one = _amounts(weigher, chosen.one)
    text = (
        f"Fitted to the first {quality.fitted:,} steps, {quoted(chosen.name)} predicts the other "
    )
    text += f"{quality.predicted:,} with errors (root mean square) of {one} one step ahead"
    if quality.ahead:
        text += f", and of {_amounts(weigher, chosen.far)} {quality.ahead} steps ahead"
    return [f"{text}.", *_good_enough(answer, chosen, quality), *_rivals(answer, quality)]


def _amounts(weigher: RegressionEvidence, numbers: object) -> str:
    texts = []
    for name, number in zip(weigher.ladder.state, np.asarray(numbers, float), strict=True):
        size = "a number that grows without bound" if math.isinf(number) else format_number(number)
        texts.append(f"{size} in {name}")
    return listed(texts)


def _good_enough(answer: Answer, chosen: LaterErrors, quality: Quality) -> list[str]:
    """Compare errors with the user's tolerance."""
    weigher, _ = _weigher(answer)
    tolerance = weigher.ladder.tolerance
    if not tolerance:
        return []
    horizons = [("one step ahead", chosen.one)]
    if quality.ahead:
        horizons.append((f"{quality.ahead} steps ahead", chosen.far))
    good = []
    bad = []
    for when, errors in horizons:
        beyond = []
        for name, error in zip(weigher.ladder.state, errors, strict=True):
            if error > tolerance.get(name, math.inf):
                beyond.append(f"{name} (tolerance {format_number(tolerance[name])})")
        if beyond:
            bad.append(f"{when} in {listed(beyond)}")
        else:
            good.append(when)
    texts = []
    if good:
        texts.append(f"That is good enough {listed(good)}.")
    if bad:
        texts.append(f"It is not good enough {'; nor '.join(bad)}.")
    return texts


def _rivals(answer: Answer, quality: Quality) -> list[str]:
    """Say whether rivals gain anything on later data."""
    weigher, _ = _weigher(answer)
    texts = []
    for kind, errors in zip(weigher.ladder.classes, quality.classes, strict=True):
        if not isinstance(kind, Rival) or errors.name == answer.model:
            continue
        name = quoted(errors.name)
        if errors.gain > 0.0 and errors.surely:
            share = f"{100.0 * errors.gain:.2g} %"
            texts.append(f"{name} predicts them better: squared errors are {share} less.")
        elif errors.gain < 0.0 and errors.surely:
            texts.append(f"{name} predicts them worse: it brings no gain there.")
        else:
            texts.append(f"{name} predicts them neither clearly better nor worse.")
    return texts


def _hints(answer: Answer) -> list[str]:
    """Say what residuals look like; these are hints, no tests."""
    weigher, state = _weigher(answer)
    return [_hint(hint) for hint in hints_of(weigher, state, answer.chosen - 1)]


def _hint(hint: Hint) -> str:
    name = hint.coordinate
    if hint.of == "change":
        return f"Hint: {quoted(name)} seems to return the change of the state, not the next state."
    if hint.of == "limit":
        share = f"{100.0 * hint.size:.2g} %"
        return f"Hint: {name} is exactly {format_number(hint.at)} in {share} of the steps: a limit?"
    if hint.of == "delay":
        share = f"{100.0 * hint.size:.2g} %"
        return f"Hint: the last action explains {share} of the residuals of {name}: a delay?"
    how = f"follow each other (correlation {hint.size:.2f})"
    if hint.of == "sensor noise":
        how = f"alternate (correlation {hint.size:.2f})"
        return f"Hint: residuals of {name} {how}: is it measured with error?"
    return f"Hint: residuals of {name} {how}: a slow disturbance, or something that is missing?"


def _advice(answer: Answer) -> str:
    if answer.misspecified:
        return (
            "add what is missing as a richer class, or orl.Rival with a regressor; "
            "or look for a variable that is missing from the state."
        )
    if _is_rival(answer):
        return "look for a term that explains what it has learned; until then plan with it."
    if answer.barely_looked:
        return "collect data that would tell the classes apart: other actions, other places."
    if answer.valued:
        return "plan with it; later data are tested as they come."
    return "use it in that range; nothing is known about it elsewhere."


def _assumed(answer: Answer) -> list[str]:
    texts = []
    if not answer.misspecified:
        texts.append(
            "One of your classes is right: a mean of its form, and normal noise of constant scale, "
            "independent from step to step and between coordinates. If so, the smallest that is "
            "right is kept, and every range holds the truth, with probability at least "
            f"{1.0 - answer.delta:g}, as far as parameters were searched."
        )
    weigher, _ = _weigher(answer)
    if sum(not isinstance(kind, Rival) for kind in weigher.ladder.classes) > 1:
        texts.append(_nesting(answer))
    if answer.judgement.search is not None:
        texts.append(
            "A grey box that is ruled out is searched again whenever the data have grown by half, "
            "and is back if parameters are found that explain them."
        )
    texts.append(
        "The whole state is measured, without error and at regular times, and actions were chosen "
        "by what the data show."
    )
    return texts


def _nesting(answer: Answer) -> str:
    """Say which classes hold which, as far as their forms show it."""
    weigher, _ = _weigher(answer)
    apart = weigher.ladder.apart
    if apart is None:
        return "Each class holds the one before it, rivals left aside."
    simpler, richer = map(quoted, apart)
    return (
        f"Whether {richer} holds {simpler} does not show in their forms, so that the one may be "
        "right where the other is ruled out."
    )


def dynamics_sections(answer: Answer) -> dict[str, str]:
    """Return the sections of a page, by title."""
    sections: dict[str, str] = {}
    by_kind: dict[Kind, list[str]] = {}
    for sentence in answer.said:
        by_kind.setdefault(sentence.kind, []).append(sentence.text)
    classes = []
    for row in answer.rows:
        classes.append(
            {
                "class": row["name"],
                "parameters": row["size"],
                "ruled out after steps": row["rejected_after"],
            }
        )
    sections["Evidence over time"] = table(classes)
    if answer.steps:
        sections["Evidence over time"] += picture(answer.plot, "the evidence against each class")
    quality = answer.later_errors if answer.steps else None
    if quality is not None:
        weigher, _ = _weigher(answer)
        rows = []
        for errors in quality.classes:
            line: dict[str, object] = {"class": errors.name}
            for j, name in enumerate(weigher.ladder.state):
                line[f"{name}, one step"] = format_number(float(errors.one[j]))
                if quality.ahead:
                    line[f"{name}, {quality.ahead} steps"] = format_number(float(errors.far[j]))
            rows.append(line)
        sections["Errors on later data"] = table(rows)
    sections["What was assumed"] = paragraphs(*by_kind.get("assumed", []))
    return sections
