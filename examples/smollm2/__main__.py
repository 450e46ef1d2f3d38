"""`python -m examples.smollm2` answers prompts, then compares the cache formats. See `--help`."""

from __future__ import annotations

import sys

from .options import parse


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        import quire

        from . import app
        from .errors import SetupError, UsageError
    except ImportError as error:
        print(f"smollm2: error: {error}; ./dev demo installs what is needed", file=sys.stderr)
        return 1
    try:
        app.run(options)
    except UsageError as error:
        print(f"smollm2: error: {error}", file=sys.stderr)
        return 2
    except (SetupError, OSError, quire.Error) as error:
        print(f"smollm2: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
