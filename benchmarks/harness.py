"""What the benchmarks share: random models and rollouts, sides that take turns, medians with their spread, tables.

A side is a process of its own that does one piece of work per turn and reports its seconds and peak memory. Sides take
turns one after the other, in an order that rotates, so that whatever else the machine does slows all of them alike.
Nothing here imports d3s at the top: the peer's sides run in an environment of their own.
"""

import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(os.environ.get("D3S_RESULTS", ROOT / "runs" / "benchmarks"))  # the tests write theirs elsewhere
TRL_PYTHON = ROOT / ".venv-trl" / "bin" / "python"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "PYTHONWARNINGS": "ignore",
}


# --- work to measure -------------------------------------------------------------------------------------------------


def save_model(
    path: Path, vocabulary: int, hidden: int = 256, layers: int = 4, intermediate: int | None = None, seed: int = 0
) -> Path:
    """Saves a Qwen2 with random weights and a tied head, and a byte tokenizer beside it; head size 64 or less."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from d3s.tiny import byte_tokenizer

    heads = max(1, hidden // 64)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate or 4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        initializer_range=0.05,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def make_rollouts(
    vocabulary: int, prompts: int, group: int, prompt_tokens: int, response_tokens: int, ragged: bool, seed: int = 0
) -> dict[str, list]:
    """Random rollouts as plain lists, `group` for each of `prompts`: ids, rewards 0 or 1, entropies, log-probabilities.

    Entropies are random too: a random model's would mark no token in particular, and nothing timed depends on them.
    With `ragged`, lengths vary between half and all of what is asked; otherwise nothing needs padding anywhere.
    """
    import random

    rng = random.Random(seed)

    def ids(longest: int) -> list[int]:
        length = rng.randint(longest // 2, longest) if ragged else longest
        return [rng.randrange(1, vocabulary) for _ in range(length)]

    asked = [ids(prompt_tokens) for _ in range(prompts)]
    responses = [ids(response_tokens) for _ in range(prompts * group)]
    return {
        "prompts": [prompt for prompt in asked for _ in range(group)],
        "responses": responses,
        "rewards": [float(i % group == 0 or (rng.random() < 0.5 and i % group > 1)) for i in range(len(responses))],
        "entropies": [[rng.random() for _ in response] for response in responses],
        "logprobs": [[-rng.random() for _ in response] for response in responses],
    }


def coin(response: str, answer: str = "") -> float:
    """A reward that is 1 for about half of all texts, so that groups are mixed whatever a random model writes."""
    return float(zlib.crc32(response.encode()) % 2)


# --- one turn --------------------------------------------------------------------------------------------------------


def resident(field: str = "VmRSS") -> float:
    """Resident memory of this process in MB, now (VmRSS) or at its peak since measured() last began (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field)) / 1024


class Meter:
    """Wall seconds, CPU seconds and memory between start() and stop()."""

    def start(self) -> None:
        """Begins a measurement: forgets the peak so far, and hands free memory back that would hide the next one."""
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        self._before = resident()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        """What was used since start(); `peak` is MB above what was resident then, `resident` what was."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"wall": wall, "cpu": cpu, "peak": resident("VmHWM") - self._before, "resident": self._before}


def serve(turn: Callable[[], dict | None]) -> None:
    """The loop of a side: one turn for each line on standard input, what it took as a line on standard output."""
    channel = open_channel()
    meter = Meter()
    for _ in sys.stdin:
        meter.start()
        extra = turn() or {}
        report(channel, meter.stop() | extra)
    os._exit(0)  # as train.py ends: gloo's threads can hold up a finished interpreter


def open_channel():
    """Standard output for reports; whatever libraries print goes to standard error from now on."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def report(channel, record: dict) -> None:
    """Sends one report to the parent."""
    channel.write(json.dumps(record) + "\n")


# --- the race --------------------------------------------------------------------------------------------------------


class Side:
    """The parent's end of a side."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        """Starts it; its standard error goes to the file `log`."""
        self._log = log
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | ENVIRONMENT | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )

    def turn(self) -> dict:
        """Has it work once and returns its report. Raises: RuntimeError with the end of its log if it died."""
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, and the empty line that follows says so
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side ended before its turn was over:\n{self._log.read_text()[-3000:]}")
        return json.loads(line)

    def close(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def race(sides: dict[str, Side], rounds: int, warmup: int = 1) -> dict[str, list[dict]]:
    """The reports of every side: `rounds` turns each, after `warmup` turns that do not count."""
    reports: dict[str, list[dict]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(warmup + rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            record = sides[name].turn()
            if number >= warmup:
                reports[name].append(record)
    return reports


# --- what is told ----------------------------------------------------------------------------------------------------


def median(reports: list[dict], key: str) -> float:
    """The median of one entry of a side's reports."""
    return statistics.median(report[key] for report in reports)


def with_spread(reports: list[dict], key: str, digits: int = 3) -> str:
    """Median and, in brackets, smallest and largest: "1.23 (1.20-1.41)"."""
    values = [report[key] for report in reports]
    low, middle, high = (f"{x:.{digits}f}" for x in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low}-{high})"


def machine() -> dict[str, str | int]:
    """What the figures were taken on."""
    import torch

    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":")[1].strip() for line in cpuinfo.splitlines() if "model name" in line), "")
    return {
        "cpu": model or platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": int(os.environ.get("OMP_NUM_THREADS", ENVIRONMENT["OMP_NUM_THREADS"])),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 1),
        "revision": revision(),
    }


def revision() -> str:
    """The commit that is measured, with a + where files have changed since; empty outside a Git checkout."""
    try:
        call = ["git", "describe", "--always", "--dirty=+", "--match="]
        return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def publish(name: str, title: str, columns: list[str], rows: list[list[str]], record: dict, notes: str = "") -> None:
    """Prints the table and writes it to RESULTS/NAME.md, with `record` and the machine in NAME.json."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:  # gpu.py runs where there is little more than torch
        print(title, *(" | ".join(row) for row in [columns, *rows]), notes, sep="\n")
    else:
        table = Table(*columns, title=title)
        for row in rows:
            table.add_row(*row)
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(table)
        console.print(notes, highlight=False, markup=False)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text("\n".join([f"**{title}**", "", markdown(columns, rows), "", notes, ""]))
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine()} | record, indent=1))
    print(f"written: {RESULTS / name}.md and .json")
