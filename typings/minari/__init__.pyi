# What occamrl uses of Minari, which ships no types. Declare here what you call for the first time.
from collections.abc import Iterator, Sequence
from typing import Any

from minari.data_collector import EpisodeBuffer

class EpisodeData:
    observations: Any
    actions: Any
    rewards: Any
    terminations: Any
    truncations: Any

class MinariDataset:
    observation_space: Any
    action_space: Any
    @property
    def total_steps(self) -> int: ...
    def iterate_episodes(self) -> Iterator[EpisodeData]: ...

def load_dataset(dataset_id: str, download: bool = False) -> MinariDataset: ...
def create_dataset_from_buffers(
    dataset_id: str, buffer: Sequence[EpisodeBuffer], **about: Any
) -> MinariDataset: ...
