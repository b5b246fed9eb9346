"""Pages in one HTML file that ask nothing of a network: text, tables and pictures become a page.

Names come from specs, records and logs, which may come from strangers. Whatever is put into an
element is text unless it was made an element here; a page has no script, and its content security
policy admits its own style, by its hash, and pictures that lie inside, and nothing else.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from occamrl.answers.tables import shown
from occamrl.naming import csv_cell, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST_DOWNLOAD = 10**6  # characters: browsers refuse addresses of more than two million

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header><h1><bdi>{title}</bdi></h1>{head}</header>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
<main id="main" tabindex="-1">{main}</main>
<footer>Written by occamrl. Everything on this page is inside this file.</footer>
</body>
</html>
"""


class Markup(str):
    """HTML, as opposed to text."""

    __slots__ = ()


def join(parts: Sequence[Markup]) -> Markup:
    """Return elements one after another."""
    return Markup("".join(parts))


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """Return an element; ``class_`` is the attribute class, ``aria_label`` is aria-label.

    >>> element("p", "1 < 2, ", element("b", "always"), class_="note")
    '<p class="note">1 &lt; 2, <b>always</b></p>'
    """
    opening = tag
    for name, value in attributes.items():
        opening += f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
    content = ""
    for child in children:
        content += child if isinstance(child, Markup) else html.escape(child)
    return Markup(f"<{opening}>{content}</{tag}>")


def render_page(title: str, sections: Mapping[str, str], head: str = "") -> str:
    """Return a page: sections by title, below a list of them; their contents are HTML."""
    style = "\n" + resources.files("occamrl.answers").joinpath("assets", "page.css").read_text()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    contents = []
    main = []
    for i, (name, content) in enumerate(sections.items()):
        contents.append(element("li", element("a", name, href=f"#s{i}")))
        main.append(element("section", element("h2", name), Markup(content), id=f"s{i}"))
    page = _PAGE.format(
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        title=html.escape(title),
        style=style,
        head=head,
        contents=join(contents),
        main=join(main),
    )
    # names are in headings, sentences, labels and the spec
    return "\n".join(map(printable, page.split("\n")))


def paragraphs(*lines: str) -> Markup:
    """Return lines as paragraphs; empty ones are left out."""
    return join([element("p", line) for line in lines if line])


def table(
    rows: Sequence[Mapping[str, object]], caption: str = "", texts: Sequence[str] = ()
) -> Markup:
    """Return rows as a table; the columns of texts stand on the left, as the first one does."""
    kinds = {name: "text" if name in texts else "number" for name in rows[0]}
    head = [element("th", name, scope="col", class_=kind) for name, kind in kinds.items()]
    body = []
    for row in rows:
        first, *others = row
        cells = [element("th", element("bdi", cell_text(row[first])), scope="row")]
        for name in others:
            cells.append(element("td", cell_text(row[name]), class_=kinds[name]))
        body.append(element("tr", *cells))
    parts = [element("thead", element("tr", *head)), element("tbody", *body)]
    if caption:
        parts.insert(0, element("caption", element("bdi", caption)))
    return element(
        "div",
        element("table", *parts),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label="Table, scrolls sideways",
    )


def cell_text(value: object) -> str:
    """Return a value as a cell shows it; what is HTML already stays it."""
    return value if isinstance(value, Markup) else shown(value)


def picture(draw: Callable[[Axes], object], label: str, height: float = 3.4) -> Markup:
    """Return what ``draw`` draws on axes as a figure of the page."""
    from matplotlib.figure import Figure

    from occamrl.answers.figures import quiet_glyphs

    figure = Figure(figsize=(5.4, height))  # small, so that its letters can be read on a phone
    file = io.BytesIO()
    with quiet_glyphs():
        draw(figure.subplots())
        figure.savefig(file, format="png", dpi=150, bbox_inches="tight")
    return element("figure", image("png", file.getvalue(), label))


def image(kind: str, data: bytes, label: str) -> Markup:
    """Return a picture that lies inside the page."""
    address = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return Markup(f'<img alt="{html.escape(label)}" src="{address}">')


def csv_link(name: str, rows: Sequence[Mapping[str, object]]) -> Markup:
    """Return a link to rows as a CSV file that lies inside the page; too many are left out."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow([csv_cell(cell) for cell in row.values()])
    address = urllib.parse.quote(file.getvalue(), safe=",")
    if len(address) > LARGEST_DOWNLOAD:
        return paragraphs(f"CSV, {name}: too much for a page; occamrl.load(FOLDER).table has it.")
    href = f"data:text/csv;charset=utf-8,{address}"
    return element("a", f"CSV: {name}", download=f"{name}.csv", href=href)
