"""Decontamination, against a comparison of all pairs of texts."""

from hypothesis import given
from hypothesis import strategies as st

from d3s.data.decontamination import decontaminate
from d3s.data.problems import Problem


def problem(text, name="p"):
    return Problem(name, text, "1", "unit")


def test_equal_texts_and_shared_ngrams_are_removed():
    words = [f"w{i}" for i in range(30)]
    test = [problem("What is $3 + 4$ ?", "sum"), problem(" ".join(words), "long")]
    train = [
        problem("WHAT is 3+4", "equal"),
        problem("What is 3*4?", "other-sign"),
        problem("x " + " ".join(words[5:18]).upper() + ", y", "thirteen"),
        problem("x " + " ".join(words[5:17]) + " y " + " ".join(words[18:30]), "twelve"),
    ]
    kept, removed = decontaminate(train, test)
    assert [p.id for p in kept] == ["other-sign", "twelve"]
    assert [(o.train_id, o.test_id, o.reason) for o in removed] == [
        ("equal", "sum", "equal"),
        ("thirteen", "long", "ngram"),
    ]
    assert removed[1].text == " ".join(words[5:18])


def test_accents_and_signs_between_words_are_ignored():
    words = [f"w{i}" for i in range(13)]
    test = [problem("Où est le café ?"), problem(" + ".join(words))]
    train = [problem("ou est le cafe", "accents"), problem("x " + " * ".join(words), "signs")]
    kept, removed = decontaminate(train, test)
    assert kept == [] and [(o.train_id, o.reason) for o in removed] == [("accents", "equal"), ("signs", "ngram")]


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
