"""Removed options: messages name the successor; old config.yaml files equal runs spelled today."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from d3s.common import UserError
from d3s.config.load import load_config
from d3s.config.removed import LATER_SECTIONS, REMOVED, update_options
from d3s.config.schema import Config
from d3s.tracking.run_directory import changed_settings
from tests.helpers.configs import METHODS, flat, rejection

OLD_DEFAULTS = {"schedule.shape": "linear", "loss.epsilon_high_is_bound": False, "eval.top_p": 1.0}


def old_file(path: Path, **changes) -> Path:
    """The config.yaml that an earlier version wrote, with changes as section__key=value."""
    content = Config().model_dump(mode="json")
    content["schedule"] |= {"n_shape": None, "k_shape": None}
    for section in LATER_SECTIONS:
        del content[section]
    for key, value in OLD_DEFAULTS.items():
        section, name = key.split(".")
        content[section][name] = value
    for key, value in changes.items():
        section, name = key.split("__")
        assert name in content[section]
        content[section][name] = value
    file = path / "config.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.parametrize("key", REMOVED)
def test_removed_option_names_its_successor(key, tmp_path):
    section, name = key.split(".")
    file = tmp_path / "own.yaml"
    file.write_text(f"{section}: {{{name}: {yaml.safe_dump(OLD_DEFAULTS[key]).split()[0]}}}\n")
    message = rejection(files=[file])
    assert message.startswith(f"{key}: removed; ")
    assert rejection(f"{key}={OLD_DEFAULTS[key]}") == message
    assert key not in flat(Config())


def test_old_defaults_load_as_the_defaults(tmp_path):
    assert load_config([old_file(tmp_path)]) == Config()


@pytest.mark.parametrize(
    ("changes", "overrides"),
    [
        ({"loss__epsilon_high": 0.28}, ["loss.epsilon_high=0.28"]),
        (
            {"loss__kind": "cispo", "loss__epsilon_high": 5.0, "loss__epsilon_high_is_bound": True},
            ["loss.kind=cispo", "loss.epsilon_high=5.0"],
        ),
        ({"loss__kind": "cispo", "loss__epsilon_high": 0.3}, ["loss.kind=cispo", "loss.epsilon_high=1.3"]),
        ({"loss__kind": "cispo"}, ["loss.kind=cispo"]),
        ({"schedule__shape": "constant"}, ["schedule.n_shape=constant", "schedule.k_shape=constant"]),
        (
            {"schedule__shape": "cosine", "schedule__n_shape": "step"},
            ["schedule.n_shape=step", "schedule.k_shape=cosine"],
        ),
        ({"schedule__k_shape": "constant"}, ["schedule.k_shape=constant"]),
        ({"reward__overlong_buffer": 205}, ["reward.overlong_buffer=0.2"]),  # DAPO's fifth of 1,024
        ({"reward__overlong_buffer": 1024}, ["reward.overlong_buffer=1.0"]),
        ({"reward__overlong_buffer": 256.0}, ["reward.overlong_buffer=0.25"]),
        ({"loss__kl_estimator": "k1"}, []),  # not read with loss.beta: 0
        ({"loss__kl_estimator": "k2", "loss__beta": 0.1}, ["loss.kl_estimator=k2", "loss.beta=0.1"]),
    ],
)
def test_old_file_loads_as_the_same_run(changes, overrides, tmp_path):
    assert load_config([old_file(tmp_path, **changes)]) == load_config([], overrides)


def test_old_checkpoint_resumes_with_its_overlay(tmp_path):
    """A run of D2S that was started before schedule.shape was split differs in nothing from D2S today."""
    old_file(tmp_path, schedule__shape="constant")
    method = next(path for path in METHODS if path.stem == "d2s")
    assert changed_settings(tmp_path, load_config([method])) == {}
    changes = changed_settings(tmp_path, load_config([method], ["train.steps=7"]))
    assert changes == {"train.steps": (Config().train.steps, 7)}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"loss__epsilon_high": 1.4, "loss__epsilon_high_is_bound": True},
            "loss.epsilon_high_is_bound: removed; no equivalent with loss.kind: grpo",
        ),
        (
            {"reward__overlong_buffer": 12.5},
            "reward.overlong_buffer: got 12.5 tokens, expected an integer; the option is a fraction now",
        ),
        ({"eval__top_p": 0.95}, f"eval.top_p: removed; {REMOVED['eval.top_p']}"),
        (
            {"loss__kl_estimator": "k1", "loss__beta": 0.1},
            "loss.kl_estimator: k1 was removed, as its expected gradient is 0; k2 and k3 compute something else",
        ),
    ],
)
def test_old_value_without_equivalent_is_rejected(changes, problem, tmp_path):
    file = old_file(tmp_path, **changes)
    assert rejection(files=[file]) == f"{file}: {problem}"


@given(st.data(), st.integers(1, 100_000))
def test_old_buffer_gives_as_many_tokens(data, length):
    tokens = data.draw(st.integers(1, length))
    content = Config().model_dump(mode="json") | {"schedule": {"shape": "linear"}}
    content["rollout"]["max_completion_length"], content["reward"]["overlong_buffer"] = length, tokens
    fraction = update_options(content, "a file")["reward"]["overlong_buffer"]
    assert 0 < fraction <= 1 and max(1, round(fraction * length)) == tokens


@pytest.mark.parametrize("method", METHODS, ids=lambda path: path.stem)
def test_overlays_apply_to_old_files(method, tmp_path):
    assert load_config([old_file(tmp_path), method]) == load_config([method])


def test_a_single_reward_function_may_be_named(tmp_path):
    """The older key is one of two ways to write the option: what comes later overrides what came before."""
    single, several, both = (tmp_path / f"{name}.yaml" for name in ("single", "several", "both"))
    single.write_text("reward: {function: 'a:b', timeout_s: 3}")
    several.write_text("reward: {functions: ['c:d', ['e:f', 2]]}")
    both.write_text("reward: {function: 'a:b', functions: ['c:d']}")
    assert load_config([single]).reward.functions == ["a:b"] and load_config([single]).reward.timeout_s == 3
    assert load_config([several, single]).reward.functions == ["a:b"]
    assert load_config([single, several]).reward.functions == ["c:d", ("e:f", 2.0)]
    assert load_config([several], ["reward.function=g:h"]).reward.functions == ["g:h"]
    with pytest.raises(UserError, match=r"both\.yaml: got both reward\.function and reward\.functions"):
        load_config([both])
