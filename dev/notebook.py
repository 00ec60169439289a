"""Write notebooks/d3s.ipynb from notebooks/d3s.py, whose cells begin with `# %%` or `# %% [markdown]`."""

import json
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "notebooks" / "d3s.py"


def cells(source: str) -> list[tuple[str, str]]:
    """The kind, markdown or code, and the text of each cell."""
    _, *parts = re.split(r"^# %%( \[markdown\])?\n", source, flags=re.MULTILINE)
    found = []
    for mark, text in zip(parts[::2], parts[1::2]):
        text = re.sub(r"^# ?", "", text, flags=re.MULTILINE) if mark else text
        found.append(("markdown" if mark else "code", text.strip("\n")))
    return found


def notebook(source: str) -> str:
    """The notebook as JSON, without outputs."""
    written = []
    for i, (kind, text) in enumerate(cells(source)):
        cell = {"cell_type": kind, "id": f"cell-{i}", "metadata": {}, "source": text.splitlines(keepends=True)}
        written.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": written, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SOURCE.with_suffix(".ipynb").write_text(notebook(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
