"""python -m millrace: the program."""

from ._program import main

main()
