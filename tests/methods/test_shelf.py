"""The shelf d3s/methods/: overlays, papers and options; its short rules against loops, brute force and autograd."""

import ast
import itertools
import math
import random
import re
import statistics
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import group_advantages
from d3s.common import UserError
from d3s.config.load import load_config
from d3s.config.schema import RewardConfig
from d3s.loss import denominators
from d3s.methods.cppo import largest
from d3s.methods.gdpo import gdpo
from d3s.methods.gmts import gmts
from d3s.methods.likely_tokens import likely_tokens
from d3s.methods.maxrl import maxrl
from d3s.methods.nat import keep_probabilities, nat
from d3s.methods.pass_at_k import pass_at_k
from d3s.methods.ragen import groups_of_variance_mass
from d3s.methods.shrinkage import shrinkage
from d3s.methods.two_stage import two_stage
from d3s.trials import attempt_rules
from tests.helpers.reference import compute_loss
from tests.helpers.selection import ALL, REWARDS, advantages_of, config, downsample
from tests.helpers.subsets import frequencies, seeded, value_tables, variance


def test_every_method_has_an_overlay_and_a_paper():
    overlays = "".join(path.read_text() for path in Path("configs").rglob("*.yaml"))
    for path in sorted(Path("d3s/methods").glob("[a-z]*.py")):
        assert re.search(r"arXiv \d{4}\.\d{5}|OpenReview \w{10}", ast.get_docstring(ast.parse(path.read_text()))), path
        assert f"d3s.methods.{path.stem}:" in overlays, path


ADVANTAGES, PASS_AT_K = "reward.advantages", "pass_at_k:pass_at_k"
FOLLOW, COVERAGE, SHARE = "schedule.follow", "coverage:Coverage", "auto_share:AutoShare"
STRATEGY, LATR, CARRY, ROUNDS = "rollout.strategy", "latr:LATR", "carry_over:CarryOver", "two_rounds:TwoRounds"
AFTER = ["selector.normalize=after", "selector.cross_share=0"]
NO_TEXTS, ENGINE = "rollout.stop=[end]", ["rollout.engine=vllm", "loss.old_logprobs=engine"]


@pytest.mark.parametrize(
    ("option", "rule", "others", "problem"),
    [
        (ADVANTAGES, f"{PASS_AT_K}, k: 0", [], "raised ValueError: k must be 1 to G - 1 = 127, not 0"),
        (ADVANTAGES, f"{PASS_AT_K}, k: 128", [], "k must be 1 to G - 1 = 127, not 128"),  # all advantages are 0
        (ADVANTAGES, f"{PASS_AT_K}, k: 2", AFTER, "requires selector.normalize: before"),  # it does not take `counted`
        ("selector.rollouts", "ragen:variance_mass, share: 1.1", [], "share must be in (0, 1], not 1.1"),
        ("selector.rollouts", "two_stage:two_stage, stage: 1", [], "stage must be an integer above 1, not 1"),
        ("selector.tokens", "likely_tokens:likely_tokens, least: 1.5", [], "least must be in [0, 1], not 1.5"),
        (FOLLOW, COVERAGE, AFTER, "requires selector.normalize: bef"),
        (FOLLOW, COVERAGE, ["schedule.n_shape=constant", "schedule.k_shape=constant"], "requires schedule ends that"),
        (FOLLOW, SHARE, ["selector.rollouts=random"], "requires selector.norm"),
        (STRATEGY, f"{LATR}, share: 2", [], "share must be a number from 0 to 1, not 2"),
        (STRATEGY, f"{LATR}, steps: -1", [], "steps must be an integer of at least 0, not -1"),
        (STRATEGY, LATR, [NO_TEXTS], "requires rollout.stop: []"),
        (STRATEGY, LATR, ["rollout.engine=transformers"], "requires rollout.engine: vllm without"),
        (STRATEGY, LATR, ["rollout.seeds=engine"], "requires rollout.seeds: request"),
        (STRATEGY, LATR, ["reward.shaper=a:b"], "requires reward.shaper: null"),
        (STRATEGY, CARRY, ["rollout.engine=vllm"], "requires loss.old_logprobs: engine"),
        (STRATEGY, CARRY, ["rollout.engine=transformers"], "requires rollout.engine: vllm without"),
        (STRATEGY, CARRY, [*ENGINE, NO_TEXTS], "requires rollout.stop: []"),
        (STRATEGY, f"{CARRY}, extra: 2", ENGINE, "extra must be a number from 0 to 1, not 2"),
        (STRATEGY, f"{CARRY}, max_age: 0", ENGINE, "max_age must be an integer of at least 1, not 0"),
        (STRATEGY, f"{ROUNDS}, first: 1", [], "first must be an integer from 2 to G - 1, not 1"),
        (STRATEGY, f"{ROUNDS}, first: 128", [], "first must be an integer from 2 to G - 1"),
        (STRATEGY, f"{ROUNDS}, extra: 0", [], "extra must be a number above 0, at most 15"),
        (STRATEGY, ROUNDS, ["rollout.tensor_parallel_size=2"], "requires rollout.tensor_parallel_size: 1"),
    ],
)
def test_options_are_refused_before_a_run(option, rule, others, problem):
    with pytest.raises(UserError, match=f"^{re.escape(option)}: .*{re.escape(problem)}"):
        attempt_rules(load_config([], [f"{option}={{rule: d3s.methods.{rule}}}", *others]))


# --- advantages -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.integers(2, 5), st.lists(st.floats(-2, 2), min_size=2, max_size=3))
def test_gdpo_follows_trl(seed, rows, weights):
    """TRL: each reward by mean and std + 1e-4 of its group, the weighted sum by those of the batch."""
    values = torch.randint(-1, 2, (len(weights), rows, 4), generator=seeded(seed)).double()
    got = gdpo(dict(enumerate(values)), dict(enumerate(weights)))
    expected = sum(w * (v - v.mean(1, keepdim=True)) / (v.std(1, keepdim=True) + 1e-4) for w, v in zip(weights, values))
    expected = (expected - expected.mean()) / (expected.std() + 1e-4)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)


def test_gdpo_counts_the_terms():
    """A function that never differs adds nothing; the length term then decides alone."""
    config = RewardConfig(functions=["m:f", "m:g"], advantages="d3s.methods.gdpo:gdpo")
    parts = {"f": torch.ones(1, 2), "g": torch.zeros(1, 2), "length": torch.tensor([[0.0, -1.0]])}
    parts["f/steps"] = torch.tensor([[7.0, math.nan]])
    got, _ = advantages_of(config, torch.ones(1, 2), parts)
    assert got[0].tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-3)


CELLS = st.tuples(st.floats(0, 10, width=32), st.booleans())  # reward, and whether it counts


@given(st.integers(2, 8).flatmap(lambda size: st.lists(st.lists(CELLS, min_size=size, max_size=size), min_size=1)))
def test_maxrl_divides_by_the_mean(groups):
    """MaxRL: (r - mean) / mean over the counted, 0 in a group of equal rewards or of none."""
    rewards, counted = torch.tensor(groups, dtype=torch.float64).unbind(2)
    for values, group in zip(maxrl(rewards, counted.bool())[0].tolist(), groups):
        own = [reward for reward, counts in group if counts]
        for value, (reward, counts) in zip(values, group):
            expected = reward / statistics.fmean(own) - 1 if counts and len(set(own)) > 1 else 0.0
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def shrunken(table):
    """Reward minus baseline of the paper's sums: n groups of m, both means without what they are compared with."""
    n, m, rows = len(table), len(table[0]), []
    for i, group in enumerate(table):
        others = [row for k, row in enumerate(table) if k != i]
        means, factor, target = [statistics.fmean(row) for row in others], 0.0, 0.0
        if others:
            target = statistics.fmean(means)
            noise = statistics.fmean(statistics.variance(row) / m for row in others)
            spread = statistics.fmean((mean - target) ** 2 for mean in means)
            factor = (n - 1) / n * noise / (noise + spread) if noise + spread else 0.0
        own = [statistics.fmean(group[:j] + group[j + 1 :]) for j in range(m)]
        rows.append([r - (1 - factor) * mean - factor * target for r, mean in zip(group, own)])
    return rows


TABLES = st.integers(2, 5).flatmap(
    lambda m: st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=m, max_size=m), min_size=1, max_size=4)
)


@given(TABLES, st.data())
def test_shrinkage_follows_the_paper(table, data):
    """And a response's own reward changes no baseline of its group's size: the gradient keeps its expectation."""
    rewards = torch.tensor(table, dtype=torch.float64)
    advantages, divisors = shrinkage(rewards)
    torch.testing.assert_close(advantages, torch.tensor(shrunken(table), dtype=torch.float64), atol=1e-9, rtol=1e-9)
    assert (divisors == 1).all()
    i, j = (data.draw(st.integers(0, size - 1)) for size in rewards.shape)
    changed = rewards.clone()
    changed[i, j] += 1
    baselines = rewards - advantages, changed - shrinkage(changed)[0]
    assert float(baselines[0][i, j]) == pytest.approx(float(baselines[1][i, j]), abs=1e-9)


def test_shrinkage_revives_dead_groups():
    """Live groups still come first; then the pooled choice takes the group of all right among mostly wrong ones."""
    rewards = torch.tensor([[1.0] * 8, [1.0, 0.0] * 4, [1.0] + [0.0] * 7, *[[0.0] * 8] * 3])
    kept = {}
    for rule in ("none", "d3s.methods.shrinkage:shrinkage"):
        settings = config(f"reward.advantages={rule}")
        advantages, selected = downsample(settings, rewards, rewards >= 0, 4, seeded(0))
        kept[rule], trained = selected.sum(1).tolist(), (selected & (advantages != 0)).sum(1).tolist()
    assert kept["none"][1:3] == [8, 8] and kept["none"][0] < 8
    assert kept["d3s.methods.shrinkage:shrinkage"] == trained == [8, 8, 8, 0, 0, 0]
    assert (advantages[0] > 0).all() and (advantages[0] < 1).all() and (advantages[3:] < 0).all()
    divisors = advantages_of(settings.reward, rewards)[1]
    assert divisors[0].isinf()  # the parts of its responses still have no advantages of their own
    for dead in (torch.full((3, 3), 0.1), torch.full((1, 7), 0.7), torch.tensor([[0.1] * 3, [0.7] * 3, [0.3] * 3])):
        assert not shrinkage(dead)[0].any()  # not even by rounding


def subset_advantages(group, k):
    """Mean standardized reward of the subsets of k responses that contain each response; population deviation."""
    subsets = list(itertools.combinations(range(len(group)), k))
    best = [max(group[i] for i in subset) for subset in subsets]
    mean, deviation = statistics.fmean(best), statistics.pstdev(best) or math.inf
    return [
        statistics.fmean((value - mean) / deviation for subset, value in zip(subsets, best) if i in subset)
        for i in range(len(group))
    ]


@given(data=st.data(), size=st.integers(2, 8), k=st.integers(1, 8))
def test_pass_at_k_advantages_match_all_subsets(data, size, k):
    k = min(k, size - 1)
    binary = st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size)
    rewards = data.draw(st.lists(binary, min_size=1, max_size=4))
    for row, group in zip(pass_at_k(torch.tensor(rewards, dtype=torch.float64), k), rewards):
        assert row.tolist() == pytest.approx(subset_advantages(group, k), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("rule", "rewards", "problem"),
    [
        ("d3s.methods.maxrl:maxrl", [0.0, 1.0, -0.25], "got the reward -0.25, expected at least 0 with d3s"),
        ({"rule": "d3s.methods.pass_at_k:pass_at_k", "k": 1}, [0.0, 1.0, 0.5], "got the reward 0.5, expected 0 or 1"),
    ],
)
def test_other_rewards_are_one_sentence(rule, rewards, problem):
    with pytest.raises(UserError, match=f"^reward.advantages: {problem}"):
        advantages_of(RewardConfig(advantages=rule), torch.tensor([rewards]))


# --- rollouts ---------------------------------------------------------------------------------------------------------


@given(value_tables(3, 6), st.data(), st.booleans())
def test_largest_rollouts_match_sorting(table, data, cross):
    keep = data.draw(st.integers(1, len(table[0])))
    eligible = [[data.draw(st.booleans()) for _ in row] for row in table]
    advantages, eligible = torch.tensor(table, dtype=torch.float64), torch.tensor(eligible)
    chosen = largest(advantages, keep, eligible, cross, seeded(0))
    assert not (chosen & ~eligible).any()
    shape, size = ((1, -1), keep * len(table)) if cross else (chosen.shape, keep)
    for values, allowed, mask in zip(*(x.reshape(shape) for x in (advantages.abs(), eligible, chosen))):
        assert sorted(values[mask].tolist()) == sorted(values[allowed].tolist())[-size:]


@pytest.mark.parametrize("cross", [True, False])
def test_largest_rollouts_break_ties_uniformly(cross):
    """Of one right answer in four and one wrong in four, the rare ones are always kept, the others equally often."""
    advantages = torch.tensor([[1.5, -0.5, -0.5, -0.5], [0.5, 0.5, 0.5, -1.5]])
    shares, tolerance = frequencies(lambda g: largest(advantages, 2, advantages < 9, cross, g))
    expected = torch.tensor([[1, 1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3, 1]])
    assert (shares - expected).abs().max() < tolerance


@given(st.lists(st.sampled_from([0.0, 0.25, 1 / 3, 0.1, 7.0]), min_size=1, max_size=9), st.integers(1, 100))
def test_variance_mass_needs_the_fewest_groups(variances, percent):
    chosen = groups_of_variance_mass(torch.tensor(variances, dtype=torch.float64), percent / 100, seeded(0)).tolist()
    needed = percent / 100 * math.fsum(variances) * (1 - 1e-8)
    sizes = range(len(variances) + 1)
    fewest = next(n for n in sizes if any(math.fsum(s) >= needed for s in itertools.combinations(variances, n)))
    kept = list(itertools.compress(variances, chosen))
    assert len(kept) == fewest and math.fsum(kept) >= needed and all(kept)


def test_variance_mass_is_exact_despite_rounding():
    """Nine of ten equal groups hold 0.9, although the sum in floats is a little less; which ones is left to chance."""
    chosen = [groups_of_variance_mass(torch.full((10,), 0.1), 0.9, seeded(seed)) for seed in range(20)]
    assert {int(mask.sum()) for mask in chosen} == {9} and len({tuple(mask.tolist()) for mask in chosen}) > 1


@pytest.mark.parametrize("cross", [1, 0])
@pytest.mark.parametrize(("share", "groups"), [(0.6, [1]), (0.7, [0, 1])])
def test_problems_without_variance_mass_are_dropped(share, groups, cross):
    """The variances are 7/64, 15/64 and 0, times 8/7: the second problem holds 0.68 of the sum."""
    rule = f"selector.rollouts={{rule: d3s.methods.ragen:variance_mass, share: {share}}}"
    settings = config(rule, f"selector.cross_share={cross}")
    advantages, kept = downsample(settings, REWARDS, ALL, 4, seeded(0))
    assert kept.any(1).nonzero()[:, 0].tolist() == groups
    assert int(kept.sum()) == (min(12, 8 * len(groups)) if cross else 4 * len(groups))
    assert torch.equal(advantages[groups], group_advantages(REWARDS)[groups])


def best(cells: dict[tuple[int, int], float], size: int) -> set[tuple[int, int]]:
    """The subset of this size with the largest variance, or all of fewer."""
    subsets = itertools.combinations(cells, min(size, len(cells)))
    return set(max(subsets, key=lambda subset: variance([cells[cell] for cell in subset]) if subset else 0.0))


def test_two_stages_match_brute_force():
    """Values are drawn from a continuum, so that no two subsets tie; some rollouts are not eligible."""
    rng = random.Random(0)
    for _ in range(150):
        groups, size, keep = rng.choice([(2, 6, 2), (3, 5, 2), (3, 4, 1), (2, 7, 3), (2, 4, 2)])
        scales = [rng.choice([0.1, 1.0, 3.0]) for _ in range(groups)]
        table = [[scale * rng.gauss(0, 1) for _ in range(size)] for scale in scales]
        eligible = [[rng.random() < 0.9 for _ in row] for row in table]
        first = {}
        for g, row in enumerate(table):
            cells = {(g, i): value for i, value in enumerate(row) if eligible[g][i]}
            first |= {cell: cells[cell] for cell in best(cells, 2 * keep)}
        chosen = two_stage(torch.tensor(table, dtype=torch.float64), keep, torch.tensor(eligible), seeded(0))
        assert {tuple(cell) for cell in chosen.nonzero().tolist()} == best(first, keep * groups)


# --- tokens -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.integers(2, 9))
def test_gmts_is_half_the_gradient_at_the_logits(seed, vocabulary):
    generator = seeded(seed)
    logits = torch.randn(5, vocabulary, generator=generator, dtype=torch.float64, requires_grad=True)
    advantages = torch.randn(5, generator=generator, dtype=torch.float64)
    sampled = torch.randint(vocabulary, (5, 1), generator=generator)
    logprobs = logits.log_softmax(-1).gather(1, sampled)[:, 0]
    (gradient,) = torch.autograd.grad(-(advantages * logprobs).sum(), logits)
    torch.testing.assert_close(2 * gmts(advantages, logprobs.detach()), gradient.abs().sum(1))


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(0, 3), st.floats(0.01, 1)), max_size=8), st.floats(0, 1))
def test_unlikely_tokens_rank_last(tokens, least):
    advantages, entropies, probabilities = torch.tensor(tokens, dtype=torch.float64).view(-1, 3).unbind(1)
    logprobs = probabilities.log()
    found = likely_tokens(advantages, entropies, logprobs, least).tolist()
    expected = [-1 if p < least else abs(a) * h for a, h, p in zip(advantages, entropies, logprobs.exp(), strict=True)]
    assert found == pytest.approx([float(x) for x in expected])


LENGTHS = [3, 1, 2]
IDS = torch.arange(3).repeat_interleave(torch.tensor(LENGTHS))


def possible_selections(prefix, fraction):
    """All selections of the tokens of LENGTHS by NAT with their probabilities, from keep_probabilities."""
    kept = keep_probabilities(fraction, IDS, prefix).split(LENGTHS if prefix else 1)
    bounds = [[1.0, *p.tolist(), 0.0] for p in kept]  # a cut is behind a token with the probability of the token
    for cuts in itertools.product(*(range(len(b) - 1) for b in bounds)):
        mask = [t < cut for b, cut in zip(bounds, cuts) for t in range(len(b) - 2)]
        yield mask, math.prod(b[cut] - b[cut + 1] for b, cut in zip(bounds, cuts))


@pytest.mark.parametrize("normalizer", ["selected", "all", "sequence", "constant"])
@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("prefix", [False, True])
def test_weighted_random_tokens_are_unbiased(prefix, fraction, normalizer):
    """The expected gradient over all selections is that of all tokens, of a loss that clips, for every normalizer."""
    parameters = torch.randn(len(IDS), generator=seeded(0), dtype=torch.float64, requires_grad=True)
    old, advantages = torch.randn(2, len(IDS), generator=seeded(1), dtype=torch.float64)
    divisors = denominators(normalizer, IDS.bincount(), IDS.bincount(), 4)[IDS]

    def gradient(selected, weights):
        chosen = torch.tensor(selected)
        terms = [values[chosen] for values in (parameters, old, advantages * weights)]
        loss, _ = compute_loss("grpo", *terms, None, (0.2, None), divisors[chosen])
        return torch.autograd.grad(loss, parameters)[0]

    weights = 1 / keep_probabilities(fraction, IDS, prefix)
    torch.testing.assert_close(nat(fraction, IDS, None, prefix)[1], weights.float())
    masks, probabilities = zip(*possible_selections(prefix, fraction))
    assert sum(probabilities) == pytest.approx(1)
    expected = sum(probability * gradient(mask, weights) for mask, probability in zip(masks, probabilities))
    torch.testing.assert_close(expected, gradient([True] * len(IDS), 1.0))


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("prefix", [False, True])
def test_random_tokens_follow_their_probabilities(prefix, fraction):
    shares, tolerance = frequencies(lambda g: nat(fraction, IDS, g, prefix)[0])
    assert (shares - keep_probabilities(fraction, IDS, prefix)).abs().max() < tolerance
    seen = {tuple(nat(fraction, IDS, seeded(seed), prefix)[0].tolist()) for seed in range(500)}
    possible = {tuple(mask) for mask, probability in possible_selections(prefix, fraction) if probability > 0}
    assert seen <= possible and len(seen) >= 4


@pytest.mark.parametrize("fraction", [0.05, 0.25, 0.5, 0.9])
def test_prefixes_keep_the_fraction_on_average(fraction):
    for length in (1, 2, 10, 1000):
        kept = keep_probabilities(fraction, torch.zeros(length, dtype=torch.long), prefix=True)
        assert fraction - 1e-12 <= kept.mean() <= fraction + 1 / length
        assert (kept > 0).all() and (kept.diff() <= 0).all() and kept[0] == 1
    half = keep_probabilities(0.5, torch.zeros(4, dtype=torch.long), prefix=True)
    assert half.tolist() == [1, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("prefix", [False, True])
def test_tokens_at_the_limits(prefix):
    chosen, weights = nat(1.0, IDS, None, prefix)
    assert chosen.all() and (weights == 1).all() and nat(0.5, IDS[:0], None, prefix)[0].shape == (0,)
    with pytest.raises(ValueError, match="fraction"):
        nat(0.0, IDS, None, prefix)
