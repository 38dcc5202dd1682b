"""The command line: what goes wrong on purpose is one line on standard error, never a traceback."""

import sys


def main() -> None:
    """Run a command. Exit status: 0 done, 2 something to mend in what was given, 130 interrupted."""
    from elmokit.cli import app
    from elmokit.errors import ElmokitError

    try:
        app()
    except SystemExit as ended:
        if _was_interrupted(ended):
            _stop(
                "interrupted; files are whole or not there, and an unfinished embed or train goes on when run again",
                130,
            )
        raise
    except ElmokitError as error:
        _stop(str(error), 2)
    except OSError as error:  # a full disk, a folder without permission
        if error.errno is None:
            raise
        _stop(f"{error.strerror}" + (f": {error.filename}" if error.filename else ""), 2)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C stands behind it: typer turns that into an exit of its own, one or another by version."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _stop(message: str, status: int) -> None:
    print("elmokit: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
