"""`python -m hiddenarm`."""

from hiddenarm.cli.main import main

if __name__ == "__main__":
    main()
