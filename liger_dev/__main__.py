"""`python -m liger_dev`: the command line."""

from liger_dev.cli import main

main()
