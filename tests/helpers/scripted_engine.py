"""An engine whose responses are a function of their seeds, with prompts and scores for it."""

import random
from collections import namedtuple
from concurrent.futures import Future

from d3s.data.problems import Problem
from d3s.data.prompts import EncodedPrompts, encode_prompts
from d3s.tiny import byte_tokenizer

TOKENIZER = byte_tokenizer()
# what the evaluation reads of a Rollout
ScriptedRollout = namedtuple("ScriptedRollout", "problem sample response_ids finished")


class ScriptedEngine:
    """Responds `prompt + \\boxed{d}` with a digit d drawn from the seed, in a random order.

    Raises KeyboardInterrupt after `responses` responses. `seeds` has those used, `calls` the responses of each call,
    `params` those of the last call.
    """

    stop_token_ids = (TOKENIZER.eos_token_id,)

    def __init__(self, responses: int = 10**6) -> None:
        self.responses, self.seeds, self.calls, self.params = responses, [], [], None

    def generate(self, prompts, n, params, seeds, *, entropies, on_finished):
        self.params = params
        self.calls.append(len(prompts) * n)
        for place in random.Random(len(prompts)).sample(range(len(seeds)), len(seeds)):
            if len(self.seeds) == self.responses:
                raise KeyboardInterrupt
            self.seeds.append(seeds[place])
            (p, i), digit = divmod(place, n), scripted_digit(seeds[place])
            text = f"{TOKENIZER.decode(prompts[p])} \\boxed{{{digit}}}" if digit < 4 else "no idea"
            ids = TOKENIZER.encode(text) + [TOKENIZER.eos_token_id] * (digit != 3)
            on_finished(ScriptedRollout(p, i, ids, digit != 3))


def scripted_digit(seed: int) -> int:
    """0 to 4: 4 is a response without an answer, 3 is cut at the length limit, and 2 is the default gold answer."""
    return random.Random(seed).randrange(5)


def exact_score(response: str, answer: str, row: dict) -> Future[float]:
    """A score function: 1 if the response ends with the boxed gold answer."""
    future = Future()
    future.set_result(float(response.endswith(f"\\boxed{{{answer}}}")))
    return future


def make_prompts(count: int, answer: str = "2", template: str = "plain", reward: str | None = None) -> EncodedPrompts:
    """Prompts of `count` problems with the same gold answer."""
    problems = [Problem(f"p{i}", f"problem {i}?", answer, "unit", reward=reward) for i in range(count)]
    return encode_prompts(problems, template, TOKENIZER, 1000)
