r"""Decide whether two answers are the same, in five layers from cheap to expensive.

1. spelling     equal normalized strings
2. numbers      written-out numbers: exact value, percent, degrees, units, bases (d3s/verifier/quantities.py)
3. words        text, choice letters, clock times (d3s/verifier/words.py)
4. structure    lists, tuples, intervals, sets, unions, matrices, relations: item by item, in order where it matters
5. formulas     one formula against another: with sympy (d3s/verifier/symbolic.py, in a worker)

Each layer decides what it can and leaves the rest to the next. A verdict is True, False, or None for "a formula
comparison is needed". The time of layers 1 to 4 grows with a power of the length, so the calling process compares short
pairs only, without layer 5, which is passed in as `formulas`.
"""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise, permutations
from string import ascii_lowercase

from d3s.verifier.approximations import exact_side, is_near
from d3s.verifier.conventions import (
    alternatives,
    equal_money,
    in_stated_order,
    labeled,
    ratio_terms,
    residues,
    split_modulus,
    with_approximation,
    with_common_letters,
)
from d3s.verifier.normalize import LONGEST_ANSWER, compact, normalize
from d3s.verifier.nouns import are_opposed
from d3s.verifier.quantities import equal_quantities, parse_quantity, strip_lead, without_description
from d3s.verifier.relations import (
    as_chain,
    assignment,
    equal_relation_and_value,
    equal_relations,
    rows_of_cases,
    same_name,
)
from d3s.verifier.structure import (
    Structure,
    is_set_operation,
    parse_structure,
    split_top,
    unit_vectors,
    without_marks,
)
from d3s.verifier.units import incompatible_units, split_unit, without_letter_unit
from d3s.verifier.verdict import Compare, Comparison, Verdict, all_of, any_of, undecided
from d3s.verifier.words import equal_words, without_choice_letter

MAX_DEPTH = 6  # levels of nested structures
MAX_ROWS = 4  # of a piecewise function

_PLAIN = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,40})?")
_GROUPS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_LETTER = re.compile(r"[A-Za-z]")
_WORD = re.compile(r"[A-Za-z]{3}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LOGIC = re.compile(r"\\(?:neg|lnot|to|implies|Rightarrow)(?![A-Za-z])")
_SINGLE_LETTER = re.compile(r"[(\s]*[A-Z]\W*|[a-z]")


def equivalent(gold: str, answer: str, formulas: Compare = undecided) -> Verdict:
    """Compare two raw answers. None only when `formulas` returns None.

    Not symmetric in one respect: precision and form are those of the gold answer.
    """
    if _PLAIN.fullmatch(gold) and _PLAIN.fullmatch(answer):
        return gold == answer or Fraction(gold) == Fraction(answer)
    if (verdict := equal_money(gold, answer)) is not None:
        return verdict
    gold, answer = normalize(gold), normalize(answer)
    if not gold or not answer:
        return False
    if len(gold) > LONGEST_ANSWER or len(answer) > LONGEST_ANSWER:
        return gold == answer
    if are_opposed(gold, answer):
        return False
    return _equal(gold, answer, formulas, 0)


def _equal(gold: str, answer: str, formulas: Compare, depth: int) -> Verdict:
    """Compare two normalized answers, or two parts of answers at a nesting `depth`."""
    if compact(gold) == compact(answer):
        return bool(gold)
    if depth > MAX_DEPTH:
        return False
    gold, answer = in_stated_order(strip_lead(gold), strip_lead(answer))
    gold, stated = exact_side(without_description(gold))
    answer, claim = exact_side(with_approximation(answer))
    if claim:
        return all_of((_equal(gold, answer, formulas, depth + 1), is_near(answer, claim, formulas)))
    (gold_core, modulus), (answer_core, answer_modulus) = split_modulus(gold), split_modulus(answer)
    if modulus and answer_modulus:
        cores = (residues(core, modulus) for core in (gold_core, answer_core))
        return modulus == answer_modulus and _equal(*cores, formulas, depth + 1)
    if (readings := alternatives(answer)) and (
        verdict := all_of(map(partial(_equal, gold, formulas=formulas, depth=depth + 1), readings))
    ) is not False:
        return verdict
    gold, answer = with_common_letters(gold, without_choice_letter(gold, answer))
    if not gold or not answer:
        return False
    gold, answer = without_letter_unit(gold, split_unit(answer)[1]), without_letter_unit(answer, split_unit(gold)[1])
    gold_number, answer_number = parse_quantity(gold), parse_quantity(answer)
    decimal = parse_quantity(stated)
    if decimal and decimal.step and answer_number and answer_number.step and equal_quantities(decimal, answer_number):
        return True  # `\sqrt{2} \approx 1.41` states both
    comparison = Comparison(
        full=partial(_equal, formulas=formulas, depth=depth + 1),
        quick=partial(_equal, formulas=undecided, depth=depth + 1),
        formulas=formulas,
    )
    if gold_number and answer_number:
        if equal_quantities(gold_number, answer_number):
            return True
        if _is_grouped(gold) and _is_grouped(answer):  # `108,135` is one number or two: compare as lists
            return comparison.in_any_order(gold.split(","), answer.split(","))
        return False
    verdict = equal_words(gold, answer)
    if verdict is not None:
        return verdict
    if gold_number and not gold_number.value and "=" not in answer and _WORD.search(_COMMAND.sub(" ", answer)):
        return False  # `0 \text{ wrong}` is no product with zero
    return _equal_structures(gold, answer, comparison)


def _is_grouped(text: str) -> bool:
    return _GROUPS.fullmatch(text.replace(", ", ",")) is not None


# ------------------------------------------------------------------------------------------------------------ structure


def _equal_structures(gold_text: str, answer_text: str, comparison: Comparison) -> Verdict:
    gold, answer = parse_structure(gold_text), parse_structure(answer_text)
    if _has_other_name(gold, answer) or _has_other_word(gold, answer):
        return False
    gold, answer = _without_names(gold), _without_names(answer)
    gold = _as_list_of_tuples(gold, "[]")
    answer = _as_list_of_tuples(answer, "[]()" if gold.kind in ("list", "set") else "[]")
    gold, answer = as_chain(gold), as_chain(answer)
    kinds = (gold.kind, answer.kind)
    if kinds == ("piecewise", "piecewise"):
        return _equal_piecewise(gold, answer, comparison)
    if kinds == ("formula", "formula"):
        return _equal_formulas(gold.items[0], answer.items[0], comparison)
    if kinds == ("relation", "relation"):
        return equal_relations(gold, answer, gold_text, answer_text, comparison)
    if "relation" in kinds:
        return equal_relation_and_value(gold, answer, gold_text, answer_text, comparison)
    if "matrix" in kinds:
        return _equal_matrices(gold, answer, comparison)
    if "groups" in kinds:
        return comparison.in_any_order(_bracketed_groups(gold), _bracketed_groups(answer))
    if kinds == ("union", "union") and comparison.in_any_order(gold.items, answer.items):
        return True
    may_be_sets = _may_be_set(gold) and _may_be_set(answer)
    if may_be_sets and (is_set_operation(gold_text) or is_set_operation(answer_text)):
        return comparison.formulas(gold_text, answer_text)  # the same set, other operations: `[0,2] \cap (1,3)`
    if "bracket" in kinds:
        gold, answer = _with_components(gold, answer), _with_components(answer, gold)
        return _equal_brackets(gold, answer, comparison)
    if gold.kind in ("list", "set") and answer.kind in ("list", "set"):
        return _equal_lists(gold, answer, comparison)
    collection = answer if gold.kind == "formula" else gold
    return comparison.full(gold.items[0], answer.items[0]) if len(collection.items) == 1 else False


def _with_components(structure: Structure, other: Structure) -> Structure:
    r"""`3\hat{i} - 2\hat{j}` is the tuple of its components beside a tuple, a row or a column."""
    if structure.kind != "formula" or other.kind == "formula":
        return structure
    components = unit_vectors(structure.items[0])
    if components and len(components) < len(other.items) == 3:
        components = (*components, "0")
    return Structure("bracket", components, "()") if components else structure


def _as_list_of_tuples(structure: Structure, styles: str) -> Structure:
    """`[(1,2), (3,4)]` is the list of its tuples; so is `((1,2), (3,4))` where the gold answer has no order."""
    if structure.kind != "bracket" or structure.style not in styles:
        return structure
    inner = [parse_structure(item) for item in structure.items]
    are_tuples = all(item.kind == "bracket" and item.style == "()" for item in inner)
    same_length = len({len(item.items) for item in inner}) == 1
    return Structure("list", structure.items) if are_tuples and same_length else structure


def _may_be_set(structure: Structure) -> bool:
    return structure.kind in ("union", "set", "bracket", "list") or is_set_operation(structure.items[0])


def _has_other_name(gold: Structure, answer: Structure) -> bool:
    """Does a list of the answer name what no item of the gold list names? `w = 1, 2` is not `x = 1, 2`."""
    if gold.kind != "list" or answer.kind != "list":
        return False
    known, given = ([named[0] for named in map(assignment, x.items) if named] for x in (gold, answer))
    return bool(known) and not all(any(same_name(name, other) for name in known) for other in given)


def _has_other_word(gold: Structure, answer: Structure) -> bool:
    """Does one say "and" where the other says "or", of statements? Of values, as of solutions, both mean a list."""
    if {gold.signs, answer.signs} != {("and",), ("or",)}:
        return False
    named = [assignment(item) for item in gold.items]
    letters = {name.partition("_")[0] for name, _ in filter(None, named)}  # `x_1 = 2 \text{ or } x_2 = 3`: solutions
    return (
        (all(named) and len(letters) > 1)
        or any(map(_LOGIC.search, gold.items))
        or all(map(_SINGLE_LETTER.fullmatch, gold.items))
        or all("\\neq" in item for item in gold.items)
        or (gold.signs == ("and",) and any("=" in item and not name for item, name in zip(gold.items, named)))
    )


def _without_names(structure: Structure) -> Structure:
    """`x = 1, 2, 3` and `x = 1, x = 2` are the list of their values."""
    if structure.kind != "list":
        return structure
    assignments = [assignment(item) for item in structure.items]
    rest = zip(assignments[1:], structure.items[1:])
    if assignments[0] and all(named is None and parse_structure(item).kind != "relation" for named, item in rest):
        return Structure("list", (assignments[0][1], *structure.items[1:]))
    names = {compact(named[0]) for named in assignments if named}
    if all(assignments) and len(names) == 1:
        return Structure("list", _values(structure.items))
    return structure


def _values(items: tuple[str, ...]) -> tuple[str, ...]:
    """Drop the names of items that all have one."""
    assignments = [assignment(item) for item in items]
    return tuple(named[1] for named in assignments if named) if all(assignments) else items


def _equal_lists(gold: Structure, answer: Structure, comparison: Comparison) -> Verdict:
    """Compare lists and sets in any order. Named items lose their names, in order, against unnamed items."""
    if len(gold.items) != len(answer.items) and not any(r"\pm" in item for item in gold.items + answer.items):
        return False
    counted = labeled(gold.items), labeled(answer.items)
    if counted[0] or counted[1]:
        return _equal_counts(gold.items, answer.items, *counted, comparison)
    if all(map(assignment, gold.items)) != all(map(assignment, answer.items)):
        return comparison.in_order(_values(gold.items), _values(answer.items))
    return comparison.in_any_order(_expand_plus_minus(gold.items), _expand_plus_minus(answer.items))


def _equal_counts(
    golds: Sequence[str],
    answers: Sequence[str],
    gold_counts: dict[str, str] | None,
    answer_counts: dict[str, str] | None,
    comparison: Comparison,
) -> Verdict:
    """Compare `3 boys and 4 girls` by what is counted. In order against other nouns, and where the answer has none."""
    if gold_counts is None or answer_counts is None:
        values = [
            list((counts or dict(zip(items, items))).values())
            for counts, items in ((gold_counts, golds), (answer_counts, answers))
        ]
        return comparison.in_order(*values) if gold_counts else comparison.in_any_order(*values)
    if gold_counts.keys() == answer_counts.keys():
        return all_of(comparison.full(value, answer_counts[noun]) for noun, value in gold_counts.items())
    return comparison.in_order(golds, answers)


def _expand_plus_minus(items: Iterable[str]) -> list[str]:
    """Replace each item with ± by its two values."""
    expanded: list[str] = []
    for item in items:
        structure = parse_structure(item) if "\\pm" in item or "\\mp" in item else None
        expanded.extend(structure.items if structure and structure.kind == "list" else [item])
    return expanded


def _equal_brackets(gold: Structure, answer: Structure, comparison: Comparison) -> Verdict:
    """Compare tuples and intervals: brackets, and items in order. `1, 2` in this order also answers `(1, 2)`."""
    if gold.kind == answer.kind == "bracket":
        return gold.style == answer.style and comparison.in_order(gold.items, answer.items)
    bracket, other = (gold, answer) if gold.kind == "bracket" else (answer, gold)
    if other.kind == "list" and bracket.style == "()":
        return comparison.in_order(_coordinates(gold.items), _coordinates(answer.items))
    return False


def _coordinates(items: tuple[str, ...]) -> tuple[str, ...]:
    """The values of items that all have a name, `y = 2, x = 1` in the order of the alphabet if it names neighbors."""
    named = [assignment(item) for item in items]
    names = "".join(sorted(name for name, _ in filter(None, named)))
    if all(named) and len(names) == len(items) and names in ascii_lowercase:
        items = tuple(item for _, item in sorted(zip((name for name, _ in named), items)))
    return _values(items)


def _bracketed_groups(structure: Structure) -> list[str]:
    """Items as tuples: `p=5, q=2` -> `(5, 2)`, `(1,2)` stays."""
    groups = []
    for item in structure.items:
        assignments = [assignment(part) for part in split_top(item, ",")]
        group = ", ".join(named[1] for named in assignments if named) if all(assignments) else item
        groups.append(group if group.startswith("(") else f"({group})")
    return groups


def _equal_matrices(gold: Structure, answer: Structure, comparison: Comparison) -> Verdict:
    """Compare matrices entry by entry; a column or row vector equals the tuple of its entries."""
    gold, answer = _rows_as_matrix(gold), _rows_as_matrix(answer)
    gold, answer = _with_components(gold, answer), _with_components(answer, gold)
    if gold.kind == answer.kind:
        return gold.style == answer.style and comparison.in_order(gold.items, answer.items)
    matrix, other = (gold, answer) if gold.kind == "matrix" else (answer, gold)
    is_vector = matrix.style in (f"{len(matrix.items)}x1", f"1x{len(matrix.items)}")
    if other.kind == "bracket" and other.style == "()" and is_vector:
        return comparison.in_order(gold.items, answer.items)
    if other.kind == "formula" and (not parse_quantity(other.items[0]) or matrix.style.startswith("det")):
        return comparison.formulas(_as_latex(gold), _as_latex(answer))
    return False


def _rows_as_matrix(structure: Structure) -> Structure:
    """`[[1,2],[3,4]]` is a matrix of its rows."""
    rows = [parse_structure(item) for item in structure.items] if structure.style == "[]" else []
    if not rows or any(row.style != "[]" or len(row.items) != len(rows[0].items) for row in rows):
        return structure
    items = tuple(item for row in rows for item in row.items)
    return Structure("matrix", items, f"{len(rows)}x{len(rows[0].items)}")


def _equal_piecewise(gold: Structure, answer: Structure, comparison: Comparison) -> Verdict:
    """Compare the rows, value and condition, in any order."""
    gold_rows, answer_rows = (rows_of_cases(structure) for structure in (gold, answer))
    if len(gold_rows) != len(answer_rows) or len(gold_rows) > MAX_ROWS:
        return False

    def equal_rows(rows: Iterable[tuple[str, str]]) -> Verdict:
        pairs = (pair for row, other in zip(gold_rows, rows) for pair in zip(row[::-1], other[::-1]))
        return all_of(comparison.full(*pair) for pair in pairs)

    return any_of(equal_rows(rows) for rows in permutations(answer_rows))


def _as_latex(structure: Structure) -> str:
    if structure.kind != "matrix":
        return structure.items[0]
    columns = int(structure.style.rpartition("x")[2])
    rows = [" & ".join(structure.items[i : i + columns]) for i in range(0, len(structure.items), columns)]
    name = "vmatrix" if structure.style.startswith("det") else "pmatrix"
    return rf"\begin{{{name}}}" + r" \\ ".join(rows) + rf"\end{{{name}}}"


# ------------------------------------------------------------------------------------------------------------- formulas


def _equal_formulas(gold: str, answer: str, comparison: Comparison) -> Verdict:
    """Compare two single formulas. A unit in words is dropped when only one has it, or when both have the same."""
    ratios = ratio_terms(gold), ratio_terms(answer)
    if max(map(len, ratios)) > 2:
        return len(ratios[0]) == len(ratios[1]) and all_of(
            comparison.formulas(rf"({a}) \cdot ({d})", rf"({b}) \cdot ({c})")
            for (a, b), (c, d) in pairwise(zip(*ratios))
        )
    (gold_core, gold_unit), (answer_core, answer_unit) = split_unit(gold), split_unit(answer)
    if (gold_unit or answer_unit) and gold_core and answer_core:
        if incompatible_units(gold_unit, answer_unit):
            return False
        if (gold_core, answer_core) != (gold, answer):
            return comparison.full(gold_core, answer_core)
    if _has_sign(gold) or _has_sign(answer):
        return _equal_without_signs(gold, answer, comparison)
    if _LETTER.fullmatch(gold) and _LETTER.fullmatch(answer):
        return gold == answer
    if "\\" in gold or "\\" in answer:
        bare = without_marks(gold, answer)
        if bare != (gold, answer):
            return comparison.full(*bare)
    return comparison.formulas(gold, answer)


def _has_sign(text: str) -> bool:
    r"""Does a percent or degree sign follow the entire formula? In `\sin 30°` it belongs to the 30."""
    return text[-1:] in ("%", "°") and not re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", text)


def _equal_without_signs(gold: str, answer: str, comparison: Comparison) -> Verdict:
    """Compare formulas without their percent or degree sign; where only one has degrees, also as radians."""
    bare = [text[:-1].strip() if _has_sign(text) else text for text in (gold, answer)]
    verdict = comparison.full(*bare) if all(text and not _has_sign(text) for text in bare) else False
    if verdict or gold.endswith("°") == answer.endswith("°"):
        return verdict
    radians = [
        rf"\frac{{({core}) \pi}}{{180}}" if text.endswith("°") else text for text, core in zip((gold, answer), bare)
    ]
    return any_of((verdict, comparison.formulas(*radians)))
