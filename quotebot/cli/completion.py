"""`quotebot completion`: what a shell needs to complete our commands and options."""

from __future__ import annotations

from typing import Literal

from quotebot.cli import exits


def completion(shell: Literal["bash", "zsh", "fish"]) -> int:
    """Print the completion script of a shell. Written where that shell looks for it, it works in the next one.

    bash: quotebot completion bash > ~/.local/share/bash-completion/completions/quotebot.
    zsh: quotebot completion zsh > a folder of $fpath, as _quotebot.
    fish: quotebot completion fish > ~/.config/fish/completions/quotebot.fish.

    Parameters
    ----------
    shell
        Whose.
    """
    from quotebot.cli.root import app  # noqa: PLC0415 -- it imports this module

    print(app.generate_completion(prog_name="quotebot", shell=shell), end="")
    return exits.OK
