"""Count what a reader meets: lines of d3s that a default step enters, and lines of code.

python -m dev.step_lines [section.key=value ...]
"""

import ast
import io
import sys
import tempfile
import threading
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1] / "d3s"
LEFT_OUT = {"verifier", "sandbox", "report", "methods"}  # of the lines of code; a step leaves out the verifier alone


class Lines:
    """Lines of d3s that run within methods of an object, by method and file."""

    def __init__(self) -> None:
        self.running, self.seen = [], defaultdict(lambda: defaultdict(set))

    def __call__(self, frame, event, argument):
        """A trace function for sys.settrace."""
        file = frame.f_code.co_filename
        if not file.startswith(f"{ROOT}/"):
            return None
        for method in self.running:
            self.seen[method][file].add(frame.f_lineno)
        return self

    def follow(self, owner: Any, method: str) -> None:
        """Record what runs within a method."""
        function = getattr(owner, method)

        def followed() -> Any:
            self.running.append(method)
            try:
                return function()
            finally:
                self.running.remove(method)

        setattr(owner, method, followed)

    def entered(self, method: str) -> str:
        """Lines of the functions that ran, whole, without the verifier, and the number of their files, in words."""
        files = [file for file in self.seen[method] if "verifier" not in Path(file).parts]
        count = 0
        for file in files:
            spans = set()
            for node in ast.walk(ast.parse(Path(file).read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    span = set(range(node.lineno, node.end_lineno + 1))
                    spans |= span if self.seen[method][file] & span else set()
            count += len(spans)
        return f"functions of {count:,} lines in {len(files)} files"


def trace_steps(overrides: list[str]) -> Lines:
    """Train two steps of configs/tiny.yaml with the transformers engine."""
    from d3s.common import silence_libraries

    silence_libraries()
    from d3s.config.load import load_config
    from d3s.trainer import Trainer

    lines = Lines()
    sys.settrace(lines)  # after the imports, which it would slow down
    threading.settrace(lines)
    with tempfile.TemporaryDirectory() as folder:
        options = ["rollout.engine=transformers", "train.steps=2", "eval.data=[]", f"train.output_dir={folder}/run"]
        trainer = Trainer(load_config(["tiny"], [*options, *overrides]))
        for method in ("step", "advance"):
            lines.follow(trainer, method)
        trainer.train()
        trainer.close()
    sys.settrace(None)
    threading.settrace(None)
    return lines


def lines_of_code(source: str) -> int:
    """Lines that hold code: without docstrings, comments and blank lines."""
    tree, counted = ast.parse(source), set()
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in ignored:
            counted |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            counted -= set(range(node.lineno, node.end_lineno + 1))
    return len(counted)


def main() -> None:
    lines = trace_steps(sys.argv[1:])
    code = sum(lines_of_code(p.read_text()) for p in ROOT.rglob("*.py") if p.relative_to(ROOT).parts[0] not in LEFT_OUT)
    print(
        f"a default step enters {lines.entered('step')}, without the verifier; "
        f"with its metrics and samples {lines.entered('advance')}"
    )
    print(f"d3s has {code:,} lines of code, without {', '.join(sorted(LEFT_OUT))}")


if __name__ == "__main__":
    main()
