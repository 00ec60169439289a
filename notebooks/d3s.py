# Source of d3s.ipynb: `python dev/notebook.py` writes it from this file.

# %% [markdown]
# # D3S, step by step
#
# One training step of D3S ([arXiv 2509.22115](https://arxiv.org/abs/2509.22115)) in pieces, then a short run. A model
# of 0.25 M parameters learns the order of operations: the demonstrations that it saw before reduce random pairs of
# numbers, so it has to find out by itself that products come first. Everything runs on one CPU core, in about two
# minutes.

# %%
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = ""  # where the repository is not, as in Colab: the address or folder of your clone

if Path("../d3s/trainer.py").is_file():  # in a clone
    os.chdir("..")
    sys.path.insert(0, os.getcwd())
elif importlib.util.find_spec("d3s") is None:
    assert REPOSITORY, "set REPOSITORY above to the address of your clone"
    subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, "clone-of-d3s"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "./clone-of-d3s"], check=True)

# %% [markdown]
# ## A run
#
# `Trainer` loads the data, the engine that generates and the actor that is trained. The base model is part of the
# repository.

# %%
import tempfile

from d3s.common import silence_libraries

silence_libraries()  # before torch is imported

import torch

from d3s.config.load import load_config
from d3s.trainer import Trainer

folder = Path(tempfile.mkdtemp())
options = ["rollout.engine=transformers", "train.prompts_per_step=32", "train.steps=40", "optim.learning_rate=3e-4"]
options += ["eval.data=[]", "checkpoint.every=0", "tracker.samples=128", f"train.output_dir={folder}"]
config = load_config(["tiny"], options)
run = Trainer(config)

# %% [markdown]
# ## 1. Generate
#
# The engine samples G = 4 responses to each of B = 32 problems. A response is right (reward 1) or wrong (reward 0).

# %%
groups = run.collect()


def show(row, *columns):
    """Print the responses to one problem, each with its value in these tables [B, G]."""
    problem = run.prompts.problems[groups.problems[row]]
    print(f"{problem.problem}{problem.answer}")
    for rollout in groups.rollouts:
        if rollout.row == row:
            text = run.tokenizer.decode(rollout.response_ids, skip_special_tokens=True)
            print("  ", *(f"{float(table[row, rollout.sample]):5.2f}" for table in columns), " ", text.strip())


mixed = groups.has_signal().nonzero().flatten().tolist()  # problems with right and wrong responses
same = (~groups.has_signal()).nonzero().flatten().tolist()
for row in [*mixed[:2], *same[:1]]:
    show(row, groups.rewards)

# %% [markdown]
# ## 2. Keep rollouts
#
# The advantage A says how much better a response is than the others to the same problem. Where all of them are
# equally good, A is 0 and there is nothing to learn. Of all B × G rollouts, D3S keeps the N × B whose advantages have
# the largest variance: the most positive and the most negative ones. The columns are the reward, A, and 1 where the
# rollout is kept.

# %%
from d3s.selector import select_rollouts

n, k = run.schedule.at(0)
generator = torch.Generator().manual_seed(0)  # equal advantages are drawn at random
advantages, _ = run.selector.advantages(groups)
kept = select_rollouts(advantages, keep=n, generator=generator)

print(f"N = {n}: {int(kept.sum())} of {kept.numel()} rollouts are kept")
print(f"variance of A: {advantages.var():.2f} of all, {advantages[kept].var():.2f} of the kept")
for row in [*mixed[:2], *same[:1]]:
    show(row, groups.rewards, advantages, kept)

# %% [markdown]
# ## 3. Select tokens
#
# Of the tokens of the kept rollouts, the fraction K with the highest |A| × H is trained, where H is the entropy of
# the model at that token. H is high where the model decides something, as which pair of numbers comes next, and near
# 0 where it copies.

# %%
import matplotlib.pyplot as plt

from d3s.collector import gather_batch
from d3s.report.method_png import draw_method_picture
from d3s.report.samples import facts
from d3s.selector import Selection, advantage_entropy, top_tokens
from d3s.tracking.metrics import TrainingStep
from d3s.tracking.samples import sample_records

selection = Selection(n, 1.0, torch.ones_like(kept), advantages, advantages, None, kept)
batch = gather_batch(groups, selection, run.accelerator)
priorities = advantage_entropy(batch.advantages, batch.entropies)
batch.select(top_tokens(priorities, k, generator=generator), priorities=priorities)
batch.trained = run.actor.trained_tokens(batch)

done = TrainingStep(k, groups, selection, batch, updates=[], metrics={})
records = sample_records(config, done, run.prompts, run.tokenizer)
picture = draw_method_picture(records, "|A|×H", folder / "step.png")
plt.figure(figsize=(8.6, 5.1), dpi=160).add_axes((0, 0, 1, 1)).imshow(plt.imread(picture))
plt.axis("off")
plt.show()
print(f"{int(batch.selected.sum())} of {int(groups.lengths.sum())} sampled tokens are trained")

# %% [markdown]
# Why was a response trained, or why not? Its record says so; `python -m d3s.report.samples` shows the same of any
# run.

# %%
for record in [*records[:4], *records[-2:]]:
    marks = zip(record["tokens"], record["trained"])
    print(facts(record))
    print("  ", record["problem"], "".join(f"⟦{token}⟧" if trained else token for token, trained in marks), "\n")

# %% [markdown]
# ## 4. Update
#
# The update runs nothing but these tokens and what they attend to. It makes tokens of good responses more likely and
# those of bad ones less likely; the tokens between them hardly move.

# %%
before, _ = run.actor.compute_logprobs(batch)
batch.old_logprobs = batch.rollout_logprobs  # of the engine, which has the same weights
run.actor.update(batch, config.optim.learning_rate, generator)
change = run.actor.compute_logprobs(batch)[0] - before

for name, tokens in (("A > 0", batch.advantages > 0), ("A < 0", batch.advantages < 0)):
    of_trained, of_others = change[tokens & batch.selected].mean(), change[tokens & ~batch.selected].mean()
    print(f"log-probability where {name}: {of_trained:+.3f} of trained tokens, {of_others:+.3f} of the others")

# %% [markdown]
# ## 5. Train
#
# `Trainer.step()` is these pieces in a row, and `Trainer.train()` repeats it.

# %%
run.train()
run.close()

# %%
from d3s.common import read_json_lines

steps = read_json_lines(folder / "metrics.jsonl")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot([line["step"] for line in steps], [line["reward/mean"] for line in steps])
left.set(title="share of right responses", xlabel="step", ylim=(0, 1))
right.plot([line["tokens_generated"] for line in steps], label="sampled")
right.plot([line["tokens_trained"] for line in steps], label="trained")
right.set(title="tokens so far", xlabel="step")
right.legend()
plt.show()

# %% [markdown]
# ## What next
#
# - Change an option above: `selector.tokens=entropy` ranks by entropy alone, `selector.tokens=random` is the control.
# - Merge a file of `configs/method/`, as `load_config(["tiny", "method/grpo"], options)`: methods of other papers.
# - Write a rule of your own into a file: `docs/hacking.md` begins with one of three lines.
# - `make demo` trains the same model for 195 steps and evaluates it.
