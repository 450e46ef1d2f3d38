"""What can go wrong for reasons that a user can mend; each is shown as one line."""


class UsageError(ValueError):
    """A value on the command line that cannot work. Exit code 2."""


class SetupError(RuntimeError):
    """Something that has to be installed first, or a file that is not what it should be. Exit code 1."""
