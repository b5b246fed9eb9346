"""Names that a stranger could put into a spec to make a page, a spreadsheet or a figure do something."""

from __future__ import annotations

from occamrl.experiments.records import Records
from tests.report.synthetic import Kind, records

MARKUP = "</script><script>window.owned=1</script><img src=x onerror='window.owned=1'>"
FORMULA = '=HYPERLINK("http://example.invalid","x")'
NAMES = (
    MARKUP,
    FORMULA,
    "${window.owned=1}`;window.owned=1;//",
    '"><svg onload=window.owned=1>',
    "<!--<script>",
    "$\\frac{1}{0}$ & $ _^",
    "\u202egnidaer siht\u2028\u2029",
    "x" * 300,
)


def hostile(seeds: int = 3) -> Records:
    kinds = [Kind(name, 0.5, facts=("chosen", "active", "norm_bound", "none")[i % 4]) for i, name in enumerate(NAMES)]
    made = records(problems=[MARKUP, FORMULA], kinds=kinds, seeds=seeds, name=MARKUP)
    for manifest in made.cells:
        manifest["versions"] = {MARKUP: MARKUP}
        manifest["machine"] = {MARKUP: MARKUP}
    made.spec["description"] = MARKUP
    made.spec[MARKUP] = {MARKUP: MARKUP}
    who = {"problem": {"label": MARKUP}, "agent": {"label": MARKUP}, "seed": MARKUP}
    made.failed.append({"cell": MARKUP, "reason": MARKUP, **who})
    return made
