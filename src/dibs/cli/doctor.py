"""``dibs doctor``: looks at the store, the queues and the workers, and says what to fix."""

import sys

import click
from rich.table import Table
from rich.text import Text

from dibs.cli import show
from dibs.cli.options import administering, json_option, run, store_options
from dibs.errors import DibsError
from dibs.stores import scheme_of
from dibs.stores.doctor import Finding, Level, examine, unfit

LOOKS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
CODES = {Level.OK: 0, Level.WARN: 1, Level.FAIL: 2}


@click.command(short_help="Check the store and what runs on it.")
@click.option("--problems", is_flag=True, help="Leave out what is well.")
@store_options
@json_option
def doctor(problems: bool, url: str, as_json: bool) -> None:
    """Check the store, its settings and clock, the queues and the workers, and say what to fix.

    Changes nothing. Exit code 0: all is well, 1: there are warnings, 2: something is broken.

    \b
      dibs doctor
      dibs doctor --url redis://cache.internal/0 --problems
      dibs doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    findings = run(_look(url))
    worst = max((finding.level for finding in findings), key=lambda level: CODES[level])
    shown = [finding for finding in findings if not problems or finding.level is not Level.OK]
    if as_json:
        show.emit({"url": show.safe_url(url), "level": worst, "findings": shown})
    else:
        _print(shown, url, worst, findings)
    sys.exit(CODES[worst])


async def _look(url: str) -> list[Finding]:
    findings = await examine(url)
    if scheme_of(url) == "memory" or findings[0].level is Level.FAIL:
        return findings
    try:
        async with administering(url) as admin:
            return [*findings, *await admin.health()]
    except DibsError as problem:
        known = any(finding.level is Level.FAIL for finding in findings)
        return findings if known else [*findings, unfit("store", problem)]


def _print(shown: list[Finding], url: str, worst: Level, findings: list[Finding]) -> None:
    screen = show.console()
    show.put(screen, Text(f"store  {show.safe_url(url)}\n", style="bright_black"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=screen.width > 60, overflow="fold")
    table.add_column(overflow="fold")
    for finding in shown:
        text = Text(show.one_line(finding.text))
        if finding.fix:
            text.append(f"\n→ {show.one_line(finding.fix)}", style="bold")
        table.add_row(Text(finding.level, style=LOOKS[finding.level]), show.one_line(finding.check), text)
    if shown:
        show.put(screen, table)
        show.put(screen, "")
    if worst is Level.OK:
        show.put(screen, Text("All is well.", style="green"))
        return
    count = {level: sum(finding.level is level for finding in findings) for level in Level}
    show.put(screen, Text(f"{count[Level.FAIL]} to fix, {show.plural(count[Level.WARN], 'warning')}."))
