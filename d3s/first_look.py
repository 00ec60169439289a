"""Say at the start what a model is asked, and after a few responses what is wrong with all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from d3s.common import printable, short

FIRST = 16  # responses that are looked at
SMALLER_STEPS = (
    "lower train.prompts_per_step, rollout.num_generations or rollout.max_completion_length for shorter steps"
)
LONG_S = 600  # seconds left of a step's generation that are worth a hint


def prompt_lines(
    template: str, text: str, tokenizer: Any, ends: Sequence[int], stop: Sequence[str], extraction: str
) -> list[tuple[str, str]]:
    """Label and text of the template, one whole prompt, what ends a response, and which answers count.

    Args:
        template: as resolve_template returns it.
        ends: end tokens.
        extraction: reward.extraction.
    """
    tokens = zip(tokenizer.convert_ids_to_tokens(list(ends)), ends)  # None for an id without a token
    names = [*(f"token {end}" if token is None else printable(token) for token, end in tokens), *map(repr, stop)]
    forms = {"strict": "the last \\boxed{}", "lenient": "the last \\boxed{}, #### or “the answer is”"}[extraction]
    return [
        ("template", template),
        ("prompt", f"--->{printable(text)}<---"),
        ("ends", f"a response ends at {', '.join(names)}; answers: {extraction} ({forms})"),
    ]


def engine_line(engine: Any) -> str:
    """How many sequences of full length the KV cache holds, where it has a size, and the threads."""
    import torch

    threads = f"{(count := torch.get_num_threads())} thread{'s' if count > 1 else ''}"
    if not engine.kv_cache_tokens:
        return threads
    sequences = engine.kv_cache_tokens // engine.max_model_len
    full = f"{sequences:,} sequences of full length ({engine.max_model_len:,} tokens)"
    return f"the KV cache holds {engine.kv_cache_tokens:,} tokens, {full}; {threads}"


@dataclass
class FirstResponses:
    """Looks at the first FIRST responses, and says one hint if none has an answer, all are cut, or all are equal."""

    say: Callable[[str], None]
    template: str  # the names of the options to set
    limit: str
    extraction: str
    temperature: str | None  # None: greedy, so that responses to a problem are equal
    asked: bool = False  # the prompts ask for \boxed{}

    def __post_init__(self) -> None:
        self._seen: list[tuple[object, str, bool, bool]] = []
        self._long_step_said = False

    @property
    def open(self) -> bool:
        """Whether further responses are looked at."""
        return len(self._seen) < FIRST

    def add(self, problem: object, text: str, finished: bool, answered: bool) -> None:
        """Look at a response. `answered` is whether an answer was found, or none is looked for."""
        if self.open:
            self._seen.append((problem, text, finished, answered))
            if not self.open and (found := self._problem()):
                self.say(f"hint: {found}")

    def progress(self, step: int, done: int, total: int, seconds: float) -> None:
        """Say how far the generation of a long step is, and once what makes steps smaller.

        Args:
            step: 0-based.
            done, total: responses of this rank.
            seconds: since the generation began.
        """
        left = seconds / done * (total - done)
        ends = f", {left / 60:,.0f} min left at this rate" if left > LONG_S else ""
        self.say(f"step {step + 1}: {done:,} of {total:,} responses after {seconds:,.0f} s{ends}")
        if ends and not self._long_step_said:
            self.say(f"hint: {SMALLER_STEPS}")
            self._long_step_said = True

    def _problem(self) -> str | None:
        problems, texts, finished, answered = zip(*self._seen)
        equal = len(set(texts)) == 1 and (self.temperature or len(set(problems)) > 1)
        if any(finished) and any(answered) and not equal:
            return None
        return self._hint(texts[-1], not any(finished), not any(answered), bool(equal))

    def _hint(self, text: str, cut: bool, unanswered: bool, equal: bool) -> str:
        """What is wrong with all responses, of which this is one, and the option to set."""
        first = f"the first {FIRST} responses"
        if equal:
            remedy = f"check {self.template}" + (f" and {self.temperature}" if self.temperature else "")
            return f"{first} are equal, {short(text)!r}; {remedy}"
        if cut:
            without = " and have no answer" * unanswered
            return f"{first} are cut{without}; raise {self.limit}, or set {self.template} to the model's own prompt"
        found = f"{first} have no answer, the last ends in {short(text[-60:])!r}"
        if not self.asked:
            return f"{found}; set {self.template} to a prompt that asks for \\boxed{{}}, or {self.extraction} lenient"
        remedy = f"set {self.extraction} lenient, show the format by train_sft.py, or take a larger model"
        return f"{found}, though the prompt asks for \\boxed{{}}; {remedy}"
