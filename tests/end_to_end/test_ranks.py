"""Two DDP ranks and two ZeRO-3 ranks against one process; missing and idle ranks."""

import json

import pytest
import torch
from safetensors.torch import load_file

from d3s.commands.runs import find_run_model
from tests.helpers.command_line import complete, lines, run
from tests.helpers.rounding import assert_same_way
from tests.helpers.small_run import arguments, parameters, same_parameters
from tests.helpers.training import EVALUATED
from tests.helpers.update_on_ranks import CASES, COMPILED, LORA

OWN = "tests.helpers.own_rules"


@pytest.fixture(scope="module")
def updated(tied_model, gqa_model, tmp_path_factory):
    """Records and parameters of helpers/update_on_ranks.py, by the name of the file; its output by launcher."""
    folder = tmp_path_factory.mktemp("updated")
    results = {}
    for launcher in ("single", "ddp", "zero3"):
        arguments = ["tests/helpers/update_on_ranks.py", *map(str, (tied_model, gqa_model, folder / launcher))]
        code, results["output of", launcher] = run(arguments, launcher)
        assert code == (launcher == "zero3"), results["output of", launcher]  # which ends with too little memory
    for file in folder.glob("*.json"):
        results[file.stem] = json.loads(file.read_text()), load_file(file.with_suffix(".safetensors"))
    return results


@pytest.mark.parametrize(
    ("case", "launcher"),
    [(case, "ddp") for case in CASES] + [(case, "zero3") for case in CASES if case not in (LORA, COMPILED)],
)
def test_two_ranks_update_as_one_process(updated, case, launcher, tied_model):
    (single_records, single_tensors), (rank_records, rank_tensors) = updated["single"], updated[launcher]
    single, ranks = single_records[case], rank_records[case]
    assert single.keys() == ranks.keys()
    for key in single.keys() - {"updates"}:  # log-probabilities of policy and reference, entropies
        assert ranks[key] == pytest.approx(single[key], abs=1e-4)
    assert single["updates"][0]["grad_norm"] > 0.1  # in the second update GSPO may clip every token
    for left, right in zip(single["updates"], ranks["updates"], strict=True):
        assert left["balance/tokens_max_over_mean"] == 1 <= right["balance/tokens_max_over_mean"] <= 2
        # a prompt is run on each rank that has a rollout of it
        assert left["selection/tokens_forwarded"] <= right["selection/tokens_forwarded"]
        known = {key: left[key] for key in ("balance/tokens_max_over_mean", "selection/tokens_forwarded")}
        assert right | known == pytest.approx(left, rel=1e-3, abs=1e-4)
        if case == "a mini-batch without a token":
            assert right["optimizer_steps"] == 6  # of 7
    assert ranks["without a token"] == [0] and not any(ranks["moves"])  # no momentum and no weight decay
    if case == "gspo, one sequence":
        assert ranks["updates"][0]["balance/tokens_max_over_mean"] == 2  # a rank without work
    start = parameters(tied_model)
    got, expected = ({name: tensors[f"{case}: {name}"] for name in start} for tensors in (rank_tensors, single_tensors))
    assert_same_way(got, expected, start)


def test_ranks_gather_and_compare(updated):
    """Arrays of unequal length are gathered; ranks that choose differently or diverge are refused."""
    errors = {launcher: updated[launcher][0]["errors"] for launcher in ("single", "ddp", "zero3")}
    alike = "ranks have different results; a rule must depend on its arguments alone, also for random numbers"
    differ, values = (f"{name}: {alike}" for name in ("other", "values"))
    assert errors["single"] == [None, None, None, None, None, None, "the gradient norm is inf", "nothing moved"]
    for launcher in ("ddp", "zero3"):
        assert updated[launcher][0]["arrays"] == [[[], [0, 1, 2]], [[0.5, 0.5], [1.5]], [[], []]]
        assert errors[launcher][:6] == [None, differ, None, values, None, values]
        assert errors[launcher][6:] == ["the gradient norm is inf", "nothing moved"]


def test_unlike_ranks_are_named(tied_model, tmp_path):
    """Statistics are added by name until rank 1 returns another one. An order must not depend on the rank."""
    words = [*arguments(tied_model, tmp_path), "train.steps=9", f"loss.kind={OWN}:unlike_ranks"]
    code, output = run(words, "ddp")
    steps = lines(tmp_path / "metrics.jsonl")
    assert {(step["loss/ones"], step["loss/twos"]) for step in steps} == {(1, 2)} and len(steps) < 9
    first = f"{OWN}:unlike_ranks returned the statistics ['ones', 'threes', 'twos'], expected ['ones', 'twos'], those"
    assert code and f"error: loss.kind: {first} of its first call; return the same from every call\n" in output
    assert "error: the connection to another process of this run was lost; see its message or" in output
    assert "in all_gather_objects" not in output, "the traceback of the other rank"
    code, output = run([*arguments(tied_model, tmp_path / "order"), f"data.order={OWN}:UnlikeOrder"], "ddp")
    differ = "error: data.order: ranks have different results; a rule must depend on its arguments alone"
    assert code and differ in output
    options = ["schedule.k_init=0.5", "schedule.k_final=1"]
    options += [f"schedule.follow={OWN}:UnlikeFollow", "selector.entropy_source=actor"]
    code, output = run([*arguments(tied_model, tmp_path / "follow"), *options], "ddp")
    assert code and differ.replace("data.order", "schedule.follow") in output
    code, output = run([*arguments(tied_model, tmp_path / "weights"), f"selector.tokens={OWN}:unlike_weights"], "ddp")
    assert code and differ.replace("data.order", "selector.tokens") in output


def test_bfloat16_sums_gradients_in_float32(updated):
    """By default DeepSpeed would sum them in bfloat16: for 4 micro-batches off by 0.3 %, for 64 by 0.9 %."""
    half = {launcher: updated[launcher][0]["half precision"] for launcher in ("single", "ddp", "zero3")}
    assert half["zero3"]["parameters"] == "torch.bfloat16" and half["zero3"]["gradients"] == "torch.float32"
    assert half["single"]["parameters"] == half["ddp"]["parameters"] == "torch.float32"
    expected = updated["single"][0]["budget of 1"]["updates"][0]["grad_norm"]
    for record in half.values():
        assert record["updates"][0]["grad_norm"] == pytest.approx(expected, rel=0.05)


def test_ddp_ranks_repeat_a_pass_beyond_memory(updated, tied_model):
    """Bitwise as two ranks that begin with the smaller micro-batches; both learn of the failure of either."""
    (cases, smaller), tensors = updated["ddp_memory"]
    assert len(cases) == 9
    for case, failed in cases.items():
        tokens = failed["tokens"]
        assert failed == smaller[str(tokens)] and tokens < 40, case
        assert failed["updates"][0]["grad_norm"] > 0.1
        for name in parameters(tied_model):
            assert torch.equal(tensors[f"{case}: {name}"], tensors[f"{tokens}: {name}"]), case


def test_zero3_rank_beyond_memory_ends_the_run(updated):
    """The other rank waits for its part of a layer, so it is ended, in less than the time limit of a collective."""
    error = "error: train.max_tokens_per_microbatch: 40 tokens do not fit into the memory of rank 0; set it to "
    assert error in updated["output of", "zero3"] and "zero3_memory" not in updated


def test_rank_without_prompts_trains(tied_model, tmp_path):
    """With vLLM. A directory in the place of its trace keeps the second rank from writing it, which stops nobody.

    The model of the last checkpoint, whose weights are in parts, is the exported one.
    """
    folder = tmp_path / "run"
    (folder / "profile" / "step_000001_rank1.json.gz").mkdir(parents=True)
    more = ["train.prompts_per_step=1", "train.steps=2", *EVALUATED, "eval.limit=1"]
    more += ["rollout.engine=vllm", "rollout.kv_cache_gb=0.1"]
    complete([*arguments(tied_model, folder), *more, "train.profile_steps=[1]"], "zero3")
    steps = lines(folder / "metrics.jsonl")
    assert [step["selection/rollouts"] for step in steps] == [2, 4]
    assert all(step["grad_norm"] > 0 and step["sync/max_abs_dlogp"] < 1e-4 for step in steps)
    assert [record["problems"] for record in lines(folder / "eval.jsonl")] == [1, 1]
    assert same_parameters(find_run_model(folder, 2), folder / "model")
    traces = {path.name for path in (folder / "profile").iterdir() if path.is_file()}
    assert traces == {"step_000001_rank0.json.gz", "step_000001_rank0.txt"}
    (warning,) = (line["message"] for line in lines(folder / "warnings.jsonl") if "profile" in line["message"])
    assert "step_000001_rank1.json.gz: incomplete (" in warning
