"""Decontamination, against a comparison of all pairs of texts."""

from hypothesis import given
from hypothesis import strategies as st

from d3s.data.decontamination import decontaminate
from d3s.data.problems import Problem


def problem(text, name="p"):
    return Problem(name, text, "1", "unit")


def test_equal_texts_and_shared_ngrams_are_removed():
    """Case, accents, punctuation and spaces do not count; arithmetic signs count in equal texts alone."""
    words = [f"w{i}" for i in range(30)]
    test = [problem("Où est $3 + 4$ ?", "sum"), problem(" + ".join(words), "long")]
    train = [
        problem("OU est 3+4", "equal"),
        problem("Où est 3*4 ?", "other-sign"),
        problem("x " + " * ".join(words[5:18]).upper() + ", y", "thirteen"),
        problem("x " + " ".join(words[5:17]) + " y " + " ".join(words[18:30]), "twelve"),
    ]
    kept, removed = decontaminate(train, test)
    assert [p.id for p in kept] == ["other-sign", "twelve"]
    assert [(o.train_id, o.test_id, o.reason) for o in removed] == [
        ("equal", "sum", "equal"), ("thirteen", "long", "ngram"),
    ]  # fmt: skip


texts = st.lists(st.sampled_from("abc"), max_size=7).map(" ".join)


@given(st.lists(texts, max_size=6), st.lists(texts, max_size=6), st.integers(1, 4))
def test_removals_match_all_pairs(train, test, size):
    def grams(text):
        words = text.split()
        return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}

    kept, removed = decontaminate([problem(t, str(i)) for i, t in enumerate(train)], [problem(t) for t in test], size)
    clean = [i for i, a in enumerate(train) if not any(a == b or grams(a) & grams(b) for b in test)]
    assert [int(p.id) for p in kept] == clean
    assert sorted([int(o.train_id) for o in removed] + clean) == list(range(len(train)))
