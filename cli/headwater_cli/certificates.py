"""The certificates that a command speaks with: three files, or none for plain text."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from headwater.errors import Invalid
from headwater_wire.credentials import FIELDS, Credentials

_HELP = {
    "certificate": "PEM, with its chain; without certificates everything is plain text.",
    "key": "PEM, without a password.",
    "ca": "PEM; the certificates of all parties are its.",
}


def taken(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for the three files, which the command gets as `credentials`."""

    @wraps(command)
    def called(*arguments: Any, **options: Any) -> Any:
        files = {field: options.pop(f"tls_{field}") for field in FIELDS}
        try:
            credentials = Credentials.of(files)
        except Invalid as error:
            raise click.ClickException(str(error)) from error
        return command(*arguments, credentials=credentials, **options)

    for field in reversed(FIELDS):
        option = click.option(
            f"--tls-{field}",
            metavar="FILE",
            envvar=f"HEADWATER_TLS_{field.upper()}",
            show_envvar=True,
            help=_HELP[field],
        )
        called = option(called)
    return called
