"""The outer structure of answers, against hand-written structures and the parts that built the text."""

from hypothesis import given
from hypothesis import strategies as st

from d3s.verifier import structure
from d3s.verifier.structure import Structure, is_name, parse_structure, split_relation, split_top

FORMULAS = ["x+1", "[5]", "(,)", "all are odd and none is even", r"\text{salt and pepper}", "band"]
FORMULAS += [r"\begin{pmatrix}1&2\\3\end{pmatrix}", r"\begin{array}{c}1\\2\end{array}"]
PIECEWISE = Structure("piecewise", ("x", "x>0", "-x", "x<0"))
STRUCTURES = {text: Structure("formula", (text,)) for text in FORMULAS} | {
    "((5))": Structure("formula", ("5",)), "1, 2": Structure("list", ("1", "2")),
    "1; 2; 3": Structure("list", ("1", "2", "3")), "1, 2, and 3": Structure("list", ("1", "2", "3"), signs=("and",)),
    r"1 \text{ or } 2": Structure("list", ("1", "2"), signs=("or",)),
    "x < 1 or x > 2": Structure("union", ("x < 1", "x > 2"), signs=("or",)),
    "x < 1 and x > 2": Structure("list", ("x < 1", "x > 2"), signs=("and",)),
    "x < 1, x > 2": Structure("list", ("x < 1", "x > 2")),
    "1,2; 3,4": Structure("groups", ("1,2", " 3,4")), "(1, 2)": Structure("bracket", ("1", "2"), "()"),
    "[0, 1)": Structure("bracket", ("0", "1"), "[)"), r"\{1, (2,3)\}": Structure("set", ("1", "(2,3)")),
    r"\{\}": Structure("set", ()), r"\{x \mid x > 2\}": Structure("relation", ("x", "2"), signs=(">",)),
    r"(0,1) \cup [2,3]": Structure("union", ("(0,1)", "[2,3]")),
    r"0 < x \leq 1": Structure("relation", ("0", "x", "1"), signs=("<", r"\leq")),
    r"3 \pm 2": Structure("list", ("3 + 2", "3 - 2")), r"1 \pm a \mp b": Structure("list", ("1 + a - b", "1 - a + b")),
    r"\pm a \pm b": Structure("list", (" a + b", " a - b", "- a + b", "- a - b")),
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": Structure("matrix", ("1", "2", "3", "4"), "2x2"),
    r"\begin{vmatrix}1&2\\3&4\end{vmatrix}": Structure("matrix", ("1", "2", "3", "4"), "det2x2"),
    r"(\begin{array}{c}1\\2\end{array})": Structure("matrix", ("1", "2"), "2x1"),
    r"\begin{cases}x=1\\y=2\end{cases}": Structure("list", ("x=1", "y=2")),
    r"\begin{cases} x &= 1 \\ y &= 2 \end{cases}": Structure("list", ("x = 1", "y = 2")),
    r"\begin{cases} x & \text{if} x>0 \\\\ -x & \text{if} x<0 \end{cases}": PIECEWISE,
    r"\begin{cases} x, & x>0 \\\\ -x, & x<0 \end{cases}": PIECEWISE,
    r"\begin{cases} x \text{if} x>0 \\\\ -x, \text{for} x<0 \\\\ \end{cases}": PIECEWISE,
}  # fmt: skip
ITEM = st.sampled_from(["1", "x+1", "(1,2)", r"\frac{1}{2}", r"\{a,b\}", "[0,1)", "f(x,y)", r"\text{a,b}"])


def test_structure_of_a_text() -> None:
    assert {text: parse_structure(text) for text in STRUCTURES} == STRUCTURES


@given(st.lists(ITEM, min_size=2, max_size=6), st.sampled_from([",", ";"]))
def test_lists_give_back_their_items(items: list[str], separator: str) -> None:
    assert split_top(separator.join(items), separator) == items
    assert parse_structure("(" + f"{separator} ".join(items) + ")").items == tuple(items)


def test_longer_lists_are_formulas() -> None:
    numbers = [str(number) for number in range(structure.MAX_ITEMS + 1)]
    assert parse_structure(",".join(numbers[:-1])).kind == "list"
    assert parse_structure(",".join(numbers)).kind == "formula"


@given(st.lists(ITEM, min_size=1, max_size=4), st.lists(st.sampled_from(["=", "<", r"\leq ", r"\in "]), min_size=3))
def test_relations_give_back_sides_and_signs(sides: list[str], signs: list[str]) -> None:
    signs = signs[: len(sides) - 1]
    text = sides[0] + "".join(sign + side for sign, side in zip(signs, sides[1:]))
    assert split_relation(text) == (sides, [sign.strip() for sign in signs])


def test_names_are_told_from_formulas() -> None:
    names = ["x", "a_1", "f(x)", r"\theta", "v'", "f^{-1}(x)", r"\frac{dy}{dx}", r"\sin\theta", "|AB|", r"\angle ABC",
             r"\text{Area}", "S:T", "P(A)", "cost", "E[X]", r"m \angle A"]  # fmt: skip
    formulas = ["5", "e", "i", "x+1", "2x", r"\pi", r"\frac{1}{2}", "", "х", "x" * 81, r"\infty"]
    assert [text for text in names + formulas if is_name(text)] == names


def test_set_operations_are_recognized() -> None:
    texts = [r"(0,1)\cup(2,3)", r"A \cap B", r"\mathbb{R}", r"\emptyset", r"A\setminus B", "(0,1)"]
    assert [text for text in texts if structure.is_set_operation(text)] == texts[:-1]


def test_marks_of_one_side_are_removed() -> None:
    bare = {
        (r"\vec{v}", "v"): ("v", "v"), ("v", r"2\vec v"): ("v", "2v"), (r"\hat{i}", r"\vec{i}"): ("i", "i"),
        (r"\overline{AB}", "AB"): ("AB", "AB"), (r"\angle ABC", "ABC"): ("ABC", "ABC"),
    } | {pair: pair for pair in ((r"\vec{v}", r"\vec{w}"), (r"\hat{p}", "p"), (r"\bar{z}", "z"))}  # fmt: skip
    assert {pair: structure.without_marks(*pair) for pair in bare} == bare
