"""The embedded base model: its names."""

import pytest

from d3s.common import UserError
from d3s.tiny import find_model, parse_name


def test_names_are_parsed():
    assert parse_name("tiny:precedence") == ("precedence", None)
    assert parse_name("tiny:countdown@7") == ("countdown", 7)
    assert parse_name("org/tiny") is None and find_model("org/tiny") == "org/tiny"


@pytest.mark.parametrize("name", ["tiny:", "tiny:chess", "tiny:precedence@", "tiny:precedence@x", "tiny:chess@1"])
def test_a_bad_name_is_refused(name):
    with pytest.raises(UserError, match=r"model.name is .*tiny:precedence or tiny:countdown, with @SEED"):
        find_model(name)
