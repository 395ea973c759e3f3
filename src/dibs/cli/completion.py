"""``dibs completion``: the script that teaches a shell the commands."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, and names of queues, tasks and workers.

    \b
      eval "$(dibs completion bash)"                            in ~/.bashrc
      eval "$(dibs completion zsh)"                             in ~/.zshrc
      dibs completion fish > ~/.config/fish/completions/dibs.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "dibs", "_DIBS_COMPLETE")
    # Not made.source(): that starts a shell to look at its version first.
    click.echo(made.source_template % made.source_vars())
