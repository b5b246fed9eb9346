# What occamrl uses of threadpoolctl, which ships no types.
from contextlib import AbstractContextManager

def threadpool_limits(limits: int, user_api: str) -> AbstractContextManager[object]: ...
