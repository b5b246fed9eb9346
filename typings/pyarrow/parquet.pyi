# What occamrl uses of pyarrow.parquet.
from collections.abc import Sequence
from os import PathLike
from typing import Any

from pyarrow import Schema, Table

def read_schema(where: str | PathLike[str]) -> Schema: ...
def read_table(source: str | PathLike[str], *, columns: Sequence[str] | None = None) -> Table: ...
def write_table(table: Table, where: str | PathLike[str], *, compression: str = "snappy", **kwargs: Any) -> None: ...
