"""Problems and encoded prompts of a training run, as its configuration defines them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from d3s.common import UserError
from d3s.config.schema import VERIFIER, Config
from d3s.data.code import CODE_REWARD, read_tests
from d3s.data.decontamination import decontaminate
from d3s.data.gym import check_tasks
from d3s.data.problems import Problem, load_problems, name_sources
from d3s.data.prompts import ChatOptions, EncodedPrompts, encode_prompts, render_prompt
from d3s.rules import rule_name


@dataclass
class Problems:
    """Training problems, test problems of each benchmark by its name, and notes for the log."""

    train: list[Problem]
    tests: dict[str, list[Problem]]
    notes: list[str]


def read_problems(config: Config) -> Problems:
    """Read the sources of data.path and eval.data, and remove training problems that overlap with data.decontaminate.

    The notes count these, repeated problems, problems with several answers, and evaluated ones that remain.

    Raises: UserError for unreadable data, if decontamination leaves nothing, for problems with a reward of their own
        where the verifier is the only one, or for answers that are no tests where they are run.
    """
    data, notes, sources = config.data, [], name_sources(config.eval.data)
    check_tasks(data.options, (*data.weights, *config.eval.data), "data.options", "data.path or eval.data")
    options = data.model_dump(include={"split", "problem_field", "answer_field", "limit", "options"})
    train = []
    for file, path in enumerate(data.weights):
        bad = []
        problems = load_problems(
            path,
            **options,
            seed=config.train.seed,
            bad_rows=bad if data.bad_rows == "skip" else None,
            verified=VERIFIER in config.reward.function_names().values(),
        )
        if bad:
            rows = len(bad) + len(problems)
            notes.append(f"data.bad_rows: skipped {len(bad)} of {rows} rows of {path}, first: {bad[0]}")
        train += [replace(problem, file=file) for problem in problems] if file else problems
    if data.decontaminate:
        tests = [p for name in data.decontaminate for p in load_problems(name, split="test", options=data.options)]
        kept, removed = decontaminate(train, tests)
        notes.append(f"decontamination removed {len(removed)} of {len(train)} problems of {data.label}")
        for problem, reason, test in removed[:5]:
            notes.append(f"removed {problem.id}: {reason} overlap with {test.id} ({test.source})")
        left = {problem.file for problem in kept}
        if gone := [problem.file for problem in train if problem.file not in left]:
            problem = f"removed all {gone.count(gone[0])} problems of {list(data.weights)[gone[0]]}"
            raise UserError(f"data.decontaminate: {problem}; use other problems, or remove it")
        train = kept
    options = {"limit": config.eval.limit, "sampled": True, "options": data.options}
    options |= {"split": config.eval.split, "verified": (config.eval.reward or VERIFIER) == VERIFIER}
    tests = {name: load_problems(source, **options) for name, source in sources.items()}
    notes += [*_repetitions(train, data.label), *_overlaps(train, tests, config)]
    if VERIFIER in map(rule_name, config.reward.rules()) and (own := next((p for p in train if p.reward), None)):
        path, own = list(data.weights)[own.file], own.reward
        raise UserError(f"{path}: its answers are not for the verifier; add reward.functions=[{own}]")
    if CODE_REWARD in map(rule_name, config.reward.rules()):
        read_tests(train[0].answer)
    return Problems(train, tests, notes)


def contents(config: Config, problems: Problems, tokenizer: Any) -> dict[str, list[Any]]:
    """The problems by the name of their source, without synthetic ones, and the prompt template: what files hold."""
    data, chat = config.data, ChatOptions(config.data.system_prompt, config.data.chat_template_kwargs)
    sources = []
    for file, path in enumerate(data.weights):
        name = f"{path} of data.path" if len(data.weights) > 1 else "data.path"
        sources.append((name, path, [problem for problem in problems.train if problem.file == file]))
    sources += [(f"{n} of eval.data", path, problems.tests[n]) for n, path in name_sources(config.eval.data).items()]
    rows = {name: rows for name, path, rows in sources if not path.startswith("synthetic:")}
    return rows | {"data.template": [render_prompt("{problem}", data.template, tokenizer, chat)]}


def _repetitions(problems: list[Problem], path: str) -> Iterator[str]:
    """Notes on problems that are asked more often than others, and on those with several answers."""
    answers: dict[str, set[str]] = {}
    for problem in problems:
        answers.setdefault(problem.problem, set()).add(problem.answer)
    if repeated := len(problems) - len(answers):
        yield f"{repeated} of {len(problems)} problems of {path} repeat an earlier one"
    if several := [text for text, golds in answers.items() if len(golds) > 1]:
        first = next(problem.id for problem in problems if problem.problem == several[0])
        yield f"{len(several)} problems of {path} have more than one answer, the first is {first}"


def _overlaps(train: list[Problem], tests: dict[str, list[Problem]], config: Config) -> Iterator[str]:
    """Notes on evaluated problems that are trained on. Only equal texts count, unlike for data.decontaminate."""
    trained = {tuple(problem.problem.split()) for problem in train}
    for name, source in name_sources(config.eval.data).items():
        if seen := sum(tuple(problem.problem.split()) in trained for problem in tests[name]):
            remedy = f"data.decontaminate=[{source}] removes them from {config.data.label}"
            if config.eval.split != "test":  # the only split that data.decontaminate reads
                remedy = "train on other problems or evaluate others"
            yield f"{seen} of {len(tests[name])} problems of {name}, which is evaluated, are also trained on; {remedy}"


def encode_problems(
    config: Config, problems: Problems, tokenizer, prompt_budget: int
) -> tuple[EncodedPrompts, dict[str, EncodedPrompts]]:
    """Render and tokenize all prompts once, before the first step. Appends to `problems.notes` what was dropped.

    Args:
        prompt_budget: tokens that the model has left for a prompt. Test prompts beyond it are dropped.

    Returns: training prompts; test prompts of each benchmark by its name.

    Raises: UserError as encode_prompts.
    """
    data, limit = config.data, min(config.data.max_prompt_length, prompt_budget)
    chat = ChatOptions(data.system_prompt, data.chat_template_kwargs)
    prompts = encode_prompts(problems.train, data.template, tokenizer, limit, data.overlong_prompts, chat)
    if prompts.dropped:
        problems.notes.append(f"{prompts.dropped} prompts longer than {limit} tokens were dropped")
    if (count := len(prompts.problems)) < (needed := config.train.prompts_per_step):
        reason = f"as train.prompts_per_step = {needed} exceeds the {count} there are"
        problems.notes.append(f"{data.label}: a step repeats problems, {reason}")
    tests = {}
    for name, asked in problems.tests.items():
        tests[name] = encode_prompts(asked, data.template, tokenizer, prompt_budget, "drop", chat)
        if dropped := tests[name].dropped:
            problems.notes.append(f"{name}: {dropped} prompts longer than {prompt_budget} tokens were dropped")
    return prompts, tests
