"""The problems of a run as the configuration asks for them, and, once there is a tokenizer, their prompts."""

from dataclasses import dataclass

from d3s.common import UserError
from d3s.config.schema import Config
from d3s.data.decontamination import decontaminate
from d3s.data.problems import Problem, load_problems, name_sources
from d3s.data.prompts import EncodedPrompts, encode_prompts


@dataclass
class Problems:
    """Training problems, test problems of each benchmark under its name, and what there is to say about them."""

    train: list[Problem]
    tests: dict[str, list[Problem]]
    notes: list[str]


def read_problems(config: Config) -> Problems:
    """Reads what data.path and eval.data name, and takes out of the first what overlaps with data.decontaminate.

    Raises: UserError for unreadable data, or fewer problems than one step takes.
    """
    data, notes = config.data, []
    train = load_problems(
        data.path,
        split=data.split,
        problem_field=data.problem_field,
        answer_field=data.answer_field,
        limit=data.limit,
        seed=config.train.seed,
    )
    if data.decontaminate:
        tests = [p for name in data.decontaminate for p in load_problems(name, split="test")]
        kept, removed = decontaminate(train, tests)
        notes.append(f"decontamination removed {len(train) - len(kept)} of {len(train)} problems of {data.path}")
        notes += [f"removed {o.train_id}: {o.reason} overlap with {o.test_id} ({o.test_source})" for o in removed[:5]]
        train = kept
    tests = {
        name: load_problems(source, split=config.eval.split, limit=config.eval.limit, sampled=True)
        for name, source in name_sources(config.eval.data).items()
    }
    _enough(train, config)
    return Problems(train, tests, notes)


def encode_problems(
    config: Config, problems: Problems, tokenizer, room: int
) -> tuple[EncodedPrompts, dict[str, EncodedPrompts]]:
    """Renders and tokenises everything once, before the first step. `room`: tokens the model has for a prompt.

    Raises: UserError for prompts over the limit (unless they are to be dropped), or if too few are left.
    """
    data, limit = config.data, min(config.data.max_prompt_length, room)
    prompts = encode_prompts(problems.train, data.template, tokenizer, limit, data.overlong_prompts)
    if prompts.dropped:
        problems.notes.append(f"{prompts.dropped} prompts longer than {limit} tokens were dropped")
    _enough(prompts.problems, config)
    tests = {n: encode_prompts(rows, data.template, tokenizer, room, "drop") for n, rows in problems.tests.items()}
    problems.notes += [
        f"{name}: {p.dropped} prompts do not fit into the model" for name, p in tests.items() if p.dropped
    ]
    return prompts, tests


def _enough(problems: list[Problem], config: Config) -> None:
    if len(problems) < config.train.prompts_per_step:
        raise UserError(
            f"{config.data.path} has {len(problems)} problem{'s' if len(problems) > 1 else ''}, must have at least "
            f"train.prompts_per_step = {config.train.prompts_per_step}"
        )
