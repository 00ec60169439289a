r"""Clock times and dates in answers: `2:30 pm` and `14:30`, `14 March` and `March 14th`."""

# ruff: noqa: SIM905 (word lists read best as one string)

import re

_CLOCK = re.compile(
    r"([0-9]{1,2})(?:(?::|\.(?=[0-9]{2} ?[ap]\.? ?m))([0-5][0-9])(?::([0-5][0-9]))?|(?= ?(?:[ap]\.? ?m|o'clock)))"
    r" ?(?:o'clock ?)?(?:in the (?=morning|afternoon|evening))?(?:([ap])\.? ?m\.?|(morning)|(afternoon|evening))?"
    r" ?(?:hours|hrs|h)?",
    re.IGNORECASE,
)
_NAMED_TIMES = {"noon": "12:00 pm", "12 noon": "12:00 pm", "midnight": "12:00 am", "12 midnight": "12:00 am"}
_MONTHS = {name[:3]: number for number, name in enumerate(
    "january february march april may june july august september october november december".split(), start=1
)}  # fmt: skip
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s*(?P<year>[0-9]{4}))?"
_DATES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (rf"{_MONTH}\s*(?:the )?{_DAY}{_YEAR}", rf"(?:the )?{_DAY}\s*(?:of )?{_MONTH}{_YEAR}")
]

# hour of the half day, minute, second, half of the day ("" where it is not said), hour as written
Time = tuple[int, int, int, str, int]

Date = tuple[int, int, int | None]  # month, day, year


def clock_time(text: str) -> Time | None:
    """Read a clock time; hours above 12 and 0 say the half of the day."""
    match = _CLOCK.fullmatch(_NAMED_TIMES.get(text.lower(), text)) if len(text) < 40 else None
    hour = int(match[1]) if match else 99
    if match is None or hour > 23:
        return None
    half = (match[4] or ("a" if match[5] else "p" if match[6] else "")).lower()
    if hour > 12 or hour == 0:
        half = "p" if hour else "a"
    return hour % 12, int(match[2] or 0), int(match[3] or 0), half, hour


def equal_times(gold: Time, answer: Time) -> bool:
    """Compare hour, minute and second, and the half of the day where the gold answer states it.

    `2:30 pm` answers `2:30`, but `14:30` does not.
    """
    return gold[:3] == answer[:3] and (gold[3] == answer[3] or (not gold[3] and gold[4] == answer[4]))


def equal_dates(gold: Date, answer: Date) -> bool:
    """Compare month and day, and the year where the gold answer states it."""
    return gold[:2] == answer[:2] and gold[2] in (None, answer[2])


def date(text: str) -> Date | None:
    """Return month, day and year (None without one) of `March 14th, 2015` or `14 March`."""
    matches = (pattern.fullmatch(text) for pattern in _DATES) if len(text) < 40 else ()
    if match := next(filter(None, matches), None):
        year = int(match["year"]) if match["year"] else None
        return _MONTHS[match["month"][:3].lower()], int(match["day"]), year
    return None
