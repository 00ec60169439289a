"""Three steps of `make demo-real` with SmolLM2-135M-Instruct; skipped where its weights cannot be fetched."""

import pytest

from d3s.common import UserError
from d3s.real import make_model
from tests.helpers.command_line import complete, lines


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The model's directory."""
    folder = tmp_path_factory.mktemp("real") / "smollm2"
    try:
        make_model(folder)
    except UserError as error:
        pytest.skip(str(error))
    return folder


@pytest.mark.slow
def test_warm_up_and_three_steps_of_the_demo(smollm2, tmp_path):
    warm, run = tmp_path / "warm", tmp_path / "run"
    size = ["train.steps=3", "train.prompts_per_step=4", "data.limit=16", "rollout.max_completion_length=32"]
    files = ["--config", "configs/sft_smollm2.yaml"]
    complete(["train_sft.py", *files, f"model.name={smollm2}", f"train.output_dir={warm}", *size])
    losses = [record["loss"] for record in lines(warm / "metrics.jsonl")]
    assert losses[0] > 1.2 > losses[-1]
    options = ["rollout.num_generations=4", "schedule.n_init=2", "schedule.n_final=4", "eval.data=[]"]
    options.append("reward.functions=[verify, [tests.helpers.rewards:even_length, 1]]")  # so early hardly any is right
    files = ["--config", "configs/smollm2.yaml", f"model.name={warm / 'model'}"]
    complete(["train.py", *files, f"train.output_dir={run}", *size, *options])
    records = lines(run / "metrics.jsonl")
    assert len(records) == 3 and all(record["mismatch/max_abs"] < 1e-2 for record in records)
    assert (run / "model" / "model.safetensors").exists()
