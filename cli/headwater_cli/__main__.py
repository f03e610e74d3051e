"""`python -m headwater_cli` is `headwater`."""

from headwater_cli.app import main

if __name__ == "__main__":
    main()
