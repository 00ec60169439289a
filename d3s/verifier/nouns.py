"""Nouns that may follow a value in an answer without changing it: `12 apples`, `5 distinct real roots`.

An allow list of regular plurals and the words below: any other word (`5 squared`, `5 tenths`, `5 wrong`) may change or
retract the value.
"""

# ruff: noqa: SIM905 (word lists read best as one string)

import re
from collections.abc import Sequence
from functools import lru_cache

_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z])")

_NOUNS = frozenset(  # irregular plurals, nouns without a plural, and nouns that follow `1`
    (
        "adult animal answer apple area atom bag ball bird block book bottle box boy bread bus cake candy car card "
        "cat cell chicken child children chocolate choice cloth coffee coin cookie corn cow crew cup customer data "
        "deer digit dog duck edge egg electron element employee equation face factor family fish flour flower food "
        "friend fruit function furniture game geese girl glass grandchildren grass guest homework horse house ice "
        "indices integer ion item juice kid lap leaf leaves lemonade letter line liquid loaves luggage lunch man "
        "marble matrices medicine member men mice milk molecule money moose music number orange outcome page paint "
        "paper particle pasta path pen pencil people period permutation person photon pizza plane player point "
        "polygon polynomial question rabbit rice root row salmon salt sand school seat sheep shelf shelves "
        "shirt shoe side slice snow soap soda soil solution spacecraft sphere stamp star stick sticker string "
        "student subset sugar tea teacher team teeth term test ticket time tooth toy trash tree triangle trip value "
        "vertex vertices wall water way wheat wine wives wolves woman women wood word work worker wrapper"
    ).split()
)
_MODIFIERS = frozenset(
    (
        "additional adjacent baby baseball big black blue bonus brown chocolate complex consecutive convex correct "
        "cubic different distinct empty equal equilateral even extra female free full gold golf gray green "
        "horizontal identical imaginary individual integral isosceles large lattice license little long male math "
        "natural negative new nonempty nonnegative nonzero odd old ordered other parking perfect pink playing "
        "positive possible prime purple rational real rectangular red regular right seating short silver small "
        "solid square stuffed such tall tennis total triangular unique unordered valid vertical video whole wooden "
        "yellow young"
    ).split()
)
_LINKS = frozenset("a an the of for in on from with per each every his her their".split())
_TAILS = frozenset(
    (
        "ago all altogether apart away deep each farther faster further heavier high later left long longer old "
        "older only remain remaining shorter square tall taller them these those times total wide younger"
    ).split()
)
_NOT_PLURALS = frozenset(  # multiples and fractions, and words that are no nouns
    (
        "always besides billions contradicts converges differs diverges does dozens equals exceeds fails goes "
        "guesses halves has holds hundreds inverses its lies logs looks means millions negates opposites perhaps "
        "quarters reciprocals seems sometimes tens thirds thousands towards trillions unless"
    ).split()
)
_DIRECTIONS = {
    word: sign + str(number)
    for number, pair in enumerate(
        (
            "older/younger taller,longer,higher/shorter,lower ago,earlier,before/later,after,hence "
            "farther,further/nearer,closer "
            "heavier/lighter faster,quicker/slower more,greater,larger,bigger/less,fewer,smaller wider/narrower "
            "deeper/shallower warmer,hotter/colder,cooler richer/poorer above/below over/under left/right "
            "north,northward/south,southward east,eastward/west,westward up,upward,upwards/down,downward,downwards "
            "increase,increases,increased,increasing,gain,gains/decrease,decreases,decreased,decreasing,loss,loses "
            "profit/loss ahead/behind forward,forwards/backward,backwards clockwise/counterclockwise,anticlockwise "
            "maximum,max/minimum,min positive/negative first/last"
        ).split()
    )
    for sign, words in zip("+-", pair.split("/"))
    for word in words.split(",")
}
_NOUNS_IN_THS = frozenset("births cloths deaths depths lengths months moths mouths myths paths widths youths".split())


def is_ordinal_fraction(word: str) -> bool:
    """Is the lower-case word a fraction such as `tenths`, and not a plural such as `months`?"""
    return word.endswith("ths") and word not in _NOUNS_IN_THS


@lru_cache(maxsize=8192)
def _directions(text: str) -> frozenset[str]:
    words = _WORD.findall(text.lower()) if _WORD.search(text) else ()
    return frozenset(_DIRECTIONS[word] for word in words if word in _DIRECTIONS)


def are_opposed(gold: str, answer: str) -> bool:
    """Does one text say `older` where the other says `younger`?"""
    given, said = _directions(gold), _directions(answer)
    if not given or not said:
        return False
    return any(way not in said and "+-"[way[0] == "+"] + way[1:] in said - given for way in given)


def is_noun(word: str) -> bool:
    """Is the lower-case word a plural, or a noun of the list?"""
    is_plural = len(word) > 3 and word[0].isalpha() and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return word in _NOUNS or (is_plural and not is_ordinal_fraction(word) and word not in _NOT_PLURALS)


def describes_count(words: Sequence[str]) -> bool:
    """Do these lower-case words only name what a value counts? They hold a noun, or say what is left or in total."""
    known = all(
        is_noun(word) or word in _MODIFIERS | _LINKS | _TAILS or before == "per"
        for word, before in zip(words, ("", *words))
    )
    return known and any(is_noun(word) or word in _TAILS for word in words)
