"""One problem in the format of HumanEval and one in that of MBPP."""

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(3) == 6\n",
}
MBPP = {
    "task_id": 2,
    "text": "Write a function to double a number.",
    "code": "def double(x):\n    return x + x",
    "test_list": ["assert double(3) == 6", "assert double(0) == 0"],
    "test_setup_code": "",
}
