"""How plain the code is: what makes lines hard to read, per 1,000 statements, beside the goals.

    python -m studies.density

Statements are those of Python's ``ast``. A name is coy that says nothing of what it holds; it is
counted once for each function that binds it. Below the table: the longest functions, public names
that are defined in several files, and every place that asks an object what it has.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COY = frozenset(
    [
        "found",
        "told",
        "at",
        "about",
        "each",
        "left",
        "own",
        "after",
        "most",
        "few",
        "place",
        "there",
        "made",
        "given",
        "more",
        "rest",
    ]
)
LONGEST_LINE = 100
GOALS = {  # per 1,000 statements
    "tuples": 8,
    "conditional": 12,
    "comprehensions": 35,
    "Any": 18,
    "probes": 3,
    "coy names": 4,
    "long lines": 0,
    "comments": 30,  # at least; of the others at most
}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


class Source(NamedTuple):
    """A file, its text and its tree."""

    path: str
    text: str
    tree: ast.Module


def read(paths: Sequence[Path]) -> list[Source]:
    """Return the files of folders, sorted."""
    sources = []
    for path in sorted(file for folder in paths for file in folder.rglob("*.py")):
        text = path.read_text("utf-8")
        sources.append(Source(str(path.relative_to(ROOT)), text, ast.parse(text)))
    return sources


def is_probe(node: ast.AST) -> bool:
    """Return whether a node asks an object what it has, or imports a module by a string."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in ("getattr", "hasattr", "import_module")
    return isinstance(node.func, ast.Attribute) and node.func.attr == "import_module"


def assigns_tuple(node: ast.AST) -> bool:
    """Return whether a node is ``a, b = x, y``, with tuples on both sides."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def names_bound(function: ast.AST) -> set[str]:
    """Return the names that a function assigns to."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def count(sources: Sequence[Source]) -> Counter[str]:
    """Return how often each hindrance occurs, and the statements."""
    counts: Counter[str] = Counter()
    for source in sources:
        for line in source.text.splitlines():
            counts["long lines"] += len(line) > LONGEST_LINE
            counts["comments"] += line.lstrip().startswith("#")
        for node in ast.walk(source.tree):
            counts["statements"] += isinstance(node, ast.stmt)
            counts["tuples"] += assigns_tuple(node)
            counts["conditional"] += isinstance(node, ast.IfExp)
            counts["comprehensions"] += isinstance(node, COMPREHENSIONS)
            counts["Any"] += isinstance(node, ast.Name) and node.id == "Any"
            counts["probes"] += is_probe(node)
            if isinstance(node, FUNCTIONS):
                counts["coy names"] += len(names_bound(node) & COY)
    return counts


def row(name: str, sources: Sequence[Source]) -> str:
    """Return a row of the table."""
    counts = count(sources)
    thousands = max(counts["statements"], 1) / 1000
    cells = [f"{counts[kind] / thousands:.0f}" for kind in GOALS]
    return " | ".join([f"| {name}", f"{counts['statements']:,}", *cells]) + " |"


def table() -> Iterator[str]:
    """Yield the rows of the table: src as a whole, its rooms, tests and studies."""
    yield " | ".join(["| per 1,000", "statements", *GOALS]) + " |"
    yield "| --- " * (len(GOALS) + 2) + "|"
    yield " | ".join(["| goal", "", *map(str, GOALS.values())]) + " |"
    for name in ("src", "tests", "studies"):
        yield row(name, read([ROOT / name]))
    package = ROOT / "src" / "occamrl"
    top = [source for source in read([package]) if Path(source.path).parent.name == "occamrl"]
    yield row("src: (top)", top)
    for room in sorted(package.iterdir()):
        if any(room.rglob("*.py")):
            yield row(f"src: {room.name}", read([room]))


def longest_functions(sources: Sequence[Source], number: int = 10) -> list[str]:
    """Return the functions with most statements in them."""
    lengths = []
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, FUNCTIONS):
                length = sum(isinstance(part, ast.stmt) for part in ast.walk(node)) - 1
                lengths.append((length, f"{source.path}:{node.lineno} {node.name}"))
    return [f"{length} {where}" for length, where in sorted(lengths, reverse=True)[:number]]


def shared_names(sources: Sequence[Source]) -> list[str]:
    """Return public functions and classes of modules that several files define."""
    # A dict and no list: overloads define a name several times in one file.
    paths: dict[str, dict[str, None]] = defaultdict(dict)
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
                paths[node.name][source.path] = None
    return [
        f"{name}: {', '.join(files)}" for name, files in sorted(paths.items()) if len(files) > 1
    ]


def probes(sources: Sequence[Source]) -> list[str]:
    """Return every place that asks an object what it has, with its line."""
    lines = []
    for source in sources:
        text = source.text.splitlines()
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and is_probe(node):
                lines.append(f"{source.path}:{node.lineno} {text[node.lineno - 1].strip()}")
    return lines


def main(words: Sequence[str] | None = None) -> None:
    """Print the table and the lists."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(words)
    print(*table(), sep="\n")
    sources = read([ROOT / "src"])
    lists = {
        "The ten longest functions of src, in statements": longest_functions(sources),
        "Public names that several files of src define": shared_names(sources),
        "getattr, hasattr and import_module in src": probes(sources),
    }
    for title, lines in lists.items():
        print(f"\n{title} ({len(lines)})", *lines, sep="\n  ")


if __name__ == "__main__":
    main()
