"""Writing a parsed spec back as TOML, so that a page carries the file to run it again."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def _text(value: str) -> str:
    # JSON's escapes are TOML's, except that JSON leaves DEL as it is and writes others as surrogate pairs.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else str(value).replace("infinity", "inf")
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(name))} = {_value(part)}" for name, part in value.items()) + "}"
    return _text(str(value))


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, Mapping) for part in value)


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Return a table: its plain values first, then its tables, then its arrays of tables."""
    lines = [
        f"{_key(name)} = {_value(value)}"
        for name, value in table.items()
        if value is not None and not isinstance(value, Mapping) and not _is_tables(value)
    ]
    for name, value in table.items():
        heading = ".".join(_key(part) for part in (*path, name))
        if isinstance(value, Mapping):
            lines += ["", f"[{heading}]", *_lines(value, (*path, name))]
        elif _is_tables(value):
            for part in value:
                lines += ["", f"[[{heading}]]", *_lines(part, (*path, name))]
    return lines


def dumps(table: Mapping[str, Any]) -> str:
    """Return TOML that parses to ``table``; entries that are None, which TOML cannot say, are left out."""
    return "\n".join(_lines(table, ())).strip("\n") + "\n"
