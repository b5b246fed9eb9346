import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from occamrl.report import data as toml

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | _text
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(_text, _values, max_size=5))
def test_a_spec_is_read_back_as_it_was(spec: dict[str, Any]) -> None:
    assert tomllib.loads(toml.dumps(spec)) == spec


def test_a_spec_reads_like_one_written_by_hand() -> None:
    spec = {
        "seeds": 3,
        "problem": {"name": "river-swim"},
        "agents": [{"name": "greedy", "sweep": {"delta": [0.1, 0.2]}}],
    }
    assert toml.dumps(spec) == (
        'seeds = 3\n\n[problem]\nname = "river-swim"\n\n[[agents]]\nname = "greedy"\n\n'
        "[agents.sweep]\ndelta = [0.1, 0.2]\n"
    )
