"""Nouns after a value, against hand-written phrases: an unknown word may change or retract the value."""

from d3s.verifier.nouns import describes_count, is_ordinal_fraction

COUNTED = """
apples|red apples|distinct real roots|ordered pairs|people|children|ways|way|times|fish|sheep|boxes|months|paths
left|in total|students in total|years older|dollars each|games per person|positive integers|perfect squares|solutions
different ways|inches tall|pairs of shoes|high|lattice points|values|cookies left
"""
CHANGING = """
squared|cubed|tenths|hundredths|thousandths|fifths|halves|thirds|quarters|tens|hundreds|dozens|incorrect|wrong|false
otherwise|not|maybe|never|minus|plus|less|unless|perhaps|rejected|excluded|doubled|halved|factorial|modulo|more|fewer
half|prime|diverges|reciprocals|negative|positive|of the|invalid|or|or apples|not apples|is|this|thus|guess
apples or pears|less apples|squared apples|\\dots|\\cos
"""


def phrases(text: str) -> list[str]:
    return text.strip().replace("\n", "|").split("|")


def test_only_known_nouns_leave_the_value() -> None:
    assert [phrase for phrase in phrases(COUNTED) if not describes_count(phrase.split())] == []
    assert [phrase for phrase in phrases(CHANGING) if describes_count(phrase.split())] == []


def test_fractions_are_told_from_plurals_in_ths() -> None:
    words = ["tenths", "hundredths", "fifths", "months", "paths", "apples", "tenth"]
    assert [word for word in words if is_ordinal_fraction(word)] == words[:3]
