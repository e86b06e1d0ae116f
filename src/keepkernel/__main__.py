"""Lets `python -m keepkernel` be the command line."""

from keepkernel.cli import main

if __name__ == "__main__":
    main()
