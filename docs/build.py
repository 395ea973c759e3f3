"""Writes the generated pages of the documentation and checks the links of all: `make docs`.

python docs/build.py           write and check
python docs/build.py --check   change nothing; exit 1 if a page is out of date or a link leads nowhere
"""

import inspect
import re
import sys
from pathlib import Path

from dibs import errors, job, outcome
from dibs.store import Store

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def store_page() -> str:
    """The store protocol, verb by verb, from its docstrings."""
    lines = ["# The store protocol", "", _prose(inspect.getdoc(sys.modules[Store.__module__])), ""]
    for name, verb in vars(Store).items():
        if inspect.isfunction(verb) and not name.startswith("_"):
            lines += [f"## {name}", "", f"```text\n{_signature(name, verb)}\n```", "", _prose(inspect.getdoc(verb)), ""]
    return "\n".join(lines)


def values_page() -> str:
    """The values that cross the store's line, and the errors, from their docstrings."""
    lines = ["# Values and errors", ""]
    for module in (job, outcome, errors):
        lines += [f"## `{module.__name__}`", "", _prose(inspect.getdoc(module)), ""]
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                lines += [f"### {name}", "", _prose(inspect.getdoc(value)), ""]
                fields = getattr(value, "__struct_fields__", ())
                if fields:
                    lines += [", ".join(f"`{field}`" for field in fields), ""]
    return "\n".join(lines)


def _signature(name: str, verb: object) -> str:
    text = str(inspect.signature(verb)).replace("self, ", "").replace("self", "")  # type: ignore[arg-type]
    return "async " + name + re.sub(r"\b(?:dibs\.\w+|datetime|uuid|collections\.abc|typing)\.(?=[A-Za-z])", "", text)


def _prose(text: str | None) -> str:
    assert text, "every public name has a docstring"
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text).replace("``", "`")


PAGES = {REFERENCE / "store.md": store_page, REFERENCE / "values.md": values_page}


def outdated() -> list[str]:
    """The generated pages that are not what they should be."""
    return [
        str(page.relative_to(ROOT)) for page, make in PAGES.items() if not page.exists() or page.read_text() != make()
    ]


def broken_links() -> list[str]:
    """Relative links in any page that lead nowhere."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in _LINK.findall(page.read_text())]
    return [
        f"{page.relative_to(ROOT)} -> {link}"
        for page, link in links
        if "://" not in link and not (page.parent / link).exists()
    ]


def main() -> int:
    """Write the pages, unless only a check is wanted, and say what is wrong."""
    if "--check" not in sys.argv:
        for page, make in PAGES.items():
            page.write_text(make())
            print(f"wrote {page.relative_to(ROOT)}")
    wrong = [f"{page} is out of date: run make docs" for page in outdated()]
    wrong += [f"broken link: {link}" for link in broken_links()]
    print("\n".join(wrong) or "every page is current, every link leads somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
