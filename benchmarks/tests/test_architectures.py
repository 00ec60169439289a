"""The last column of the page of architectures: what two ranks computed against what one process did."""

from benchmarks.architectures import ranks_cell

ALONE = [[1.0, 2.0], [3.0, 4.0]]


def test_cell_has_the_gap_or_who_differs():
    near, far = [[1.0, 2.0], [3.0, 4.00001]], [[1.0, 2.5], [3.0, 4.0]]
    assert ranks_cell(ALONE, {"DDP": ALONE, "ZeRO-3": near}) == "works, 1e-05"
    assert ranks_cell(ALONE, {"DDP": far, "ZeRO-3": near}) == "DDP differs by 0.5"
    assert ranks_cell(ALONE, {"DDP": "ValueError: no", "ZeRO-3": None}) == (
        "DDP fails: ValueError: no; ZeRO-3 fails: None"
    )
    assert ranks_cell("phi: no head", {"DDP": ALONE, "ZeRO-3": ALONE}) == "refused: phi: no head"
