"""`python -m ncprob` is the command `ncprob`."""

from ncprob.cli import main

if __name__ == "__main__":
    main()
