"""The table of distillation by K, against figures worked out by hand; all runs differ in K, seed and steps alone."""

from research import teacher

RIGHT, WRONG = "1111", "0000"


def test_table_compares_equal_steps_and_seconds(tmp_path):
    """All tokens are right at their end; of 5 % half the problems after as many steps, all in as many seconds."""
    lines = [",".join(teacher.COLUMNS)]
    for seed in (1, 2):
        for k, steps in teacher.STEPS.items():
            at = {0: WRONG, teacher.EQUAL_STEPS: "1100" if k == 0.05 else RIGHT, steps: RIGHT}
            lines += [f"{k:g},{seed},{step},{60 * step / steps:g},{100 * step},{right}" for step, right in at.items()]
    path = tmp_path / "teacher.csv"
    path.write_text("\n".join(lines) + "\n")
    table = teacher.table(path).splitlines()
    assert "in 60 CPU s" in table[0]
    assert table[2].startswith("| 5% | 100 | 4 | 50.0; -50.0 (") and "| 100.0; +0.0 (" in table[2]
    assert table[-1] == "| 100% | 100 | 10 | 100.0 | 100.0 |"
