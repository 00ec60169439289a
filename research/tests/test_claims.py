"""The registered claims name rows that can be compared at their budget."""

import pytest

from research.claims import CLAIMS
from research.result_tables import EQUAL
from research.rows import BY_NAME


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text)
def test_claim_names_comparable_rows(claim):
    row, reference = BY_NAME[claim.row], BY_NAME[claim.reference]
    assert claim.row != claim.reference and claim.axis in EQUAL and claim.k in (1, 8)
    assert (row.bases, row.first_seed) == (reference.bases, reference.first_seed)
    shared = sum(base.startswith(claim.task or "") for base in row.bases)
    assert shared * min(row.seeds, reference.seeds) >= 10
    assert row.problems == reference.problems
    if claim.axis == "steps":
        assert min(row.steps, reference.steps) >= 60
    if claim.task:
        assert 0 < shared < len(row.bases)


def test_claims_are_distinct():
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)
    assert len({(c.row, c.reference, c.axis, c.k, c.task, c.zeros_computed) for c in CLAIMS}) == len(CLAIMS)
