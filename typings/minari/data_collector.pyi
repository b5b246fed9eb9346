# What the tests use of minari.data_collector.
from typing import Any

class EpisodeBuffer:
    def __init__(
        self,
        *,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminations: Any,
        truncations: Any,
    ) -> None: ...
