# What occamrl uses of plotly.subplots.
from typing import Any

from plotly.graph_objects import Figure

def make_subplots(rows: int = 1, cols: int = 1, **kwargs: Any) -> Figure: ...
