"""Pieces of SVG. Colours and fonts are for the style sheet: here are shapes, positions and classes."""

from collections.abc import Iterable

from markupsafe import Markup, escape


def tag(name: str, inside: Iterable[Markup] | str = "", **attributes: object) -> Markup:
    """One element; attributes in Python's spelling (``class_``, ``text_anchor``), text and values escaped."""
    said = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    body = escape(inside) if isinstance(inside, str) else Markup("").join(inside)
    return Markup("<{0}{1}>{2}</{0}>").format(name, said, body)


def text(x: float, y: float, words: str, class_: str = "", **attributes: object) -> Markup:
    return tag("text", words, x=x, y=y, class_=class_ or None, **attributes)


def title(words: str) -> Markup:
    """What a pointer that rests on the element is told, and a screen reader."""
    return tag("title", words)


def picture(
    size: tuple[float, float], inside: Iterable[Markup], label: str, class_: str, **attributes: object
) -> Markup:
    """A whole drawing, scaled by the page; ``label`` says in words what it shows."""
    return tag(
        "svg",
        [title(label), *inside],
        viewBox=f"0 0 {_value(size[0])} {_value(size[1])}",
        class_=class_,
        role="img",
        aria_label=label,
        **attributes,
    )


def path(points: Iterable[tuple[float, float]]) -> str:
    """A line through the points."""
    return " ".join(f"{'L' if n else 'M'}{_value(x)} {_value(y)}" for n, (x, y) in enumerate(points))


def _value(value: object) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
