"""The one exception that means: the user can fix this. Command lines print it as one sentence and exit with 2."""


class UserError(Exception):
    """What is wrong, where, and what is allowed, in one sentence."""
