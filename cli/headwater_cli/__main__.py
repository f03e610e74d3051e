"""`headwater`, also as `python -m headwater_cli`."""

from __future__ import annotations

from headwater_cli import interrupts


def main() -> None:
    with interrupts.ending_at_once():
        from headwater_cli.app import main as command
    command()


if __name__ == "__main__":
    main()
