"""``dibs token``: make a token for the API and the dashboard."""

import click

from dibs.cli import show


@click.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["reader", "operator"]), default="reader", show_default=True)
@click.option("--password", is_flag=True, help="Ask for a secret that you choose, instead of making a random one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def token(name: str, role: str, password: bool, as_json: bool) -> None:
    """Make a token called NAME. A reader looks, an operator changes, too.

    Prints the token itself, which is kept nowhere, and a line with its hash, for the token file that is given to
    dibs serve.

    \b
      dibs token ada --role operator
    """
    from dibs.http.service.data import Role
    from dibs.http.tokens import chosen_token, new_token

    if password:
        chosen = click.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
        secret, made = None, chosen_token(name, Role(role), chosen)
    else:
        secret, made = new_token(name, Role(role))
    if as_json:
        show.emit({"name": made.name, "role": made.role, "token": secret, "line": made.line()})
        return
    if secret is not None:
        click.echo(f"token  {secret}  (shown once)", err=True)
    click.echo(made.line())
