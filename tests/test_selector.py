"""Both levels of selection against brute force, sorting by hand, and statistics over seeds."""

import itertools
import math
import statistics

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from d3s.advantage import group_advantages
from d3s.config.load import load_config
from d3s.downsampling import downsample_rollouts, downsample_tokens
from d3s.metrics import selection_metrics
from d3s.packing import Batch
from d3s.selector import mixed_rollouts, random_rollouts, select_rollouts, select_tokens, top_tokens

values = st.one_of(
    st.sampled_from([0.0, 1.0]),  # many ties, as with binary rewards
    st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0]),
    st.floats(-1e4, 1e4),
    st.floats(-1e-6, 1e-6),
)


def tables(rows, columns):
    shape = st.tuples(st.integers(1, rows), st.integers(2, columns))
    one_kind = st.sampled_from([0, 1, 2, 3]).map(lambda kind: values.original_strategies[kind])
    return st.tuples(shape, one_kind).flatmap(
        lambda drawn: st.lists(
            st.lists(drawn[1], min_size=drawn[0][1], max_size=drawn[0][1]),
            min_size=drawn[0][0],
            max_size=drawn[0][0],
        )
    )


def variance(numbers):
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((x - mean) ** 2 for x in numbers) / len(numbers)


def best_variance(pool, size):
    return max(variance(subset) for subset in itertools.combinations(pool, size))


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# --- rollouts --------------------------------------------------------------------------------------------------------


@given(tables(3, 8), st.data())
def test_within_groups_no_subset_is_better(table, data):
    keep = data.draw(st.integers(1, len(table[0])))
    chosen = select_rollouts(torch.tensor(table, dtype=torch.float64), keep, cross_group=False)
    assert chosen.dtype == torch.bool and chosen.sum(1).tolist() == [keep] * len(table)
    for row, mask in zip(table, chosen.tolist()):
        got = variance(list(itertools.compress(row, mask)))
        assert got == pytest.approx(best_variance(row, keep), rel=1e-7, abs=1e-30)


@given(tables(3, 4), st.data())
def test_across_groups_no_subset_is_better(table, data):
    keep = data.draw(st.integers(1, len(table[0])))
    chosen = select_rollouts(torch.tensor(table, dtype=torch.float64), keep)
    pool = list(itertools.chain(*table))
    assert int(chosen.sum()) == keep * len(table)
    got = variance(list(itertools.compress(pool, chosen.flatten().tolist())))
    assert got == pytest.approx(best_variance(pool, keep * len(table)), rel=1e-7, abs=1e-30)


@given(tables(3, 6), st.data())
def test_no_subset_of_the_eligible_is_better(table, data):
    """Within groups, across them, and where fewer are eligible than asked for: against every subset of that size."""
    keep = data.draw(st.integers(1, len(table[0])))
    mask = [[data.draw(st.booleans()) for _ in row] for row in table]
    advantages, eligible = torch.tensor(table, dtype=torch.float64), torch.tensor(mask)
    within = select_rollouts(advantages, keep, cross_group=False, eligible=eligible)
    across = select_rollouts(advantages, keep, eligible=eligible)
    assert not (within & ~eligible).any() and not (across & ~eligible).any()
    pools = [(list(itertools.compress(row, m)), keep, row, c) for row, m, c in zip(table, mask, within.tolist())]
    everything = list(itertools.chain(*table))
    allowed = list(itertools.compress(everything, itertools.chain(*mask)))
    if math.comb(len(allowed), min(keep * len(table), len(allowed))) < 2_000:
        pools.append((allowed, keep * len(table), everything, across.flatten().tolist()))
    for pool, size, row, chosen in pools:
        size = min(size, len(pool))
        assert sum(chosen) == size
        if size:
            got = variance(list(itertools.compress(row, chosen)))
            assert got == pytest.approx(best_variance(pool, size), rel=1e-7, abs=1e-30)


@given(tables(3, 6), st.data(), st.floats(0, 1), st.booleans())
def test_every_way_to_choose_fills_its_budget_with_the_eligible(table, data, cross_share, cross):
    keep = data.draw(st.integers(1, len(table[0])))
    advantages = torch.tensor(table, dtype=torch.float64)
    eligible = torch.tensor([[data.draw(st.booleans()) for _ in row] for row in table])
    whole = min(keep * len(table), int(eligible.sum()))
    of_each = eligible.sum(1).clamp(max=keep).tolist()
    mixed = mixed_rollouts(advantages, keep, cross_share, seeded(0), eligible)
    drawn = random_rollouts(advantages, keep, cross, seeded(0), eligible)
    assert not (mixed & ~eligible).any() and not (drawn & ~eligible).any()
    assert mixed.sum(1).tolist() == of_each if cross_share == 0 else int(mixed.sum()) == whole
    assert int(drawn.sum()) == whole if cross else drawn.sum(1).tolist() == of_each


@given(tables(1, 16), st.data())
def test_half_of_the_rollouts_keep_the_variance_of_a_standardised_group(table, data):
    """Lemma 1 of D3S with population variances, which then holds for every even number."""
    row = torch.tensor(table, dtype=torch.float64)
    assume(variance(table[0]) > 1e-15)
    row = (row - row.mean()) / row.std(correction=0)
    keep = 2 * data.draw(st.integers(1, row.shape[1] // 2))
    chosen = select_rollouts(row, keep)
    assert variance(row[chosen].tolist()) >= 1 - 1e-9


@given(tables(1, 12), st.data())
def test_any_number_keeps_the_variance_that_bessel_corrects(table, data):
    """Lemma 1 with the sample variance on both sides, which is how advantages are made here."""
    row = torch.tensor(table, dtype=torch.float64)
    assume(variance(table[0]) > 1e-15)
    row = (row - row.mean()) / row.std()
    chosen = select_rollouts(row, data.draw(st.integers(2, row.shape[1])))
    assert row[chosen].var() >= 1 - 1e-9


def test_an_odd_number_is_one_of_a_kind_more():
    """Why N is even between its ends: three of two and two have the population variance 8/9, and lean to one side."""
    row = torch.tensor([[1.0, 1.0, -1.0, -1.0]])
    for seed in range(5):
        chosen = row[select_rollouts(row, 3, generator=seeded(seed))]
        assert variance(chosen.tolist()) == pytest.approx(8 / 9) and abs(chosen.sum()) == 1


def frequencies(select, seeds=500):
    """How often each place is chosen, over seeds, and the largest deviation that chance explains (5 sigma)."""
    counts = sum(select(seeded(seed)).double() for seed in range(seeds))
    return counts / seeds, 5 * math.sqrt(0.25 / seeds)


@pytest.mark.parametrize(
    ("table", "keep", "cross", "expected"),
    [
        ([[0.0] * 6], 2, False, [[1 / 3] * 6]),
        ([[0.0] * 4, [0.0] * 4], 2, True, [[0.5] * 4] * 2),
        # two of each kind must be kept: those of the same value share the places evenly
        ([[1.0, 0, 1, 0, 1, 0, 0, 0]], 4, False, [[2 / 3, 2 / 5, 2 / 3, 2 / 5, 2 / 3, 2 / 5, 2 / 5, 2 / 5]]),
        ([[1.0, 0, 0], [0.0, 1, 1]], 2, True, [[2 / 3] * 3] * 2),
        # an odd number: one of either kind more, both equally good
        ([[1.0, 0, 1, 0]], 3, False, [[3 / 4] * 4]),
        ([[-1.0, 0, 1, 0]], 2, False, [[1, 0, 1, 0]]),
    ],
)
def test_ties_prefer_no_place(table, keep, cross, expected):
    shares, tolerance = frequencies(lambda g: select_rollouts(torch.tensor(table), keep, cross, g))
    assert (shares - torch.tensor(expected, dtype=torch.float64)).abs().max() < tolerance


def test_the_seed_decides():
    advantages = torch.zeros(4, 16)
    masks = [select_rollouts(advantages, 4, generator=seeded(seed)) for seed in (1, 1, 2)]
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])


def test_advantages_are_compared_across_groups_as_they_are():
    """Were they normalised again, both groups would be equally good."""
    advantages = torch.tensor([[-0.1, 0.1, -0.1, 0.1], [-3.0, 3.0, -3.0, 3.0]])
    assert select_rollouts(advantages, 2).tolist() == [[False] * 4, [True] * 4]
    before = advantages.clone()
    select_rollouts(advantages, 2)
    assert torch.equal(advantages, before)


@pytest.mark.parametrize(
    ("advantages", "keep", "message"),
    [
        (torch.zeros(4), 2, "must be"),
        (torch.zeros(2, 4), 0, "between 1 and G = 4"),
        (torch.zeros(2, 4), 5, "between 1 and G = 4"),
        (torch.tensor([[0.0, math.nan]]), 1, "finite"),
        (torch.tensor([[0.0, -math.inf]]), 1, "finite"),
    ],
)
def test_impossible_rollout_selections(advantages, keep, message):
    with pytest.raises(ValueError, match=message):
        select_rollouts(advantages, keep)


@given(tables(4, 8), st.data(), st.floats(0, 1), st.integers(0, 2**31))
def test_between_within_and_across(table, data, cross_share, seed):
    advantages, keep = torch.tensor(table, dtype=torch.float64), data.draw(st.integers(1, len(table[0])))
    chosen = mixed_rollouts(advantages, keep, cross_share, seeded(seed))
    assert int(chosen.sum()) == keep * len(table)
    assert int(chosen.sum(1).min()) >= 2 * math.floor((1 - cross_share) * keep / 2)
    for share, cross in ((0.0, False), (1.0, True)):
        end = select_rollouts(advantages, keep, cross_group=cross, generator=seeded(seed))
        assert torch.equal(mixed_rollouts(advantages, keep, share, seeded(seed)), end)


def test_the_share_that_is_not_cross_group_is_kept_of_every_group():
    advantages = torch.tensor([[-0.1, 0.1, -0.1, 0.1], [-3.0, 3.0, -3.0, 3.0]])
    counts = {share: mixed_rollouts(advantages, 4, share, seeded(0)).sum(1).tolist() for share in (0, 0.5, 1)}
    assert counts == {0: [4, 4], 0.5: [4, 4], 1: [4, 4]}
    wide = advantages.repeat(1, 5)  # (1 - 0.8) * 10 is a little less than 2
    counts = {share: mixed_rollouts(wide, 10, share, seeded(0)).sum(1).tolist() for share in (0, 0.5, 0.6, 0.8, 0.9, 1)}
    assert counts == {0: [10, 10], 0.5: [4, 16], 0.6: [4, 16], 0.8: [2, 18], 0.9: [0, 20], 1: [0, 20]}


def test_no_group_keeps_a_single_rollout_of_its_own():
    """The variance of one value is 0, so one would be chosen at random; two are the extremes."""
    advantages = torch.tensor([[-1.0, 0, 0, 0, 0, 0, 0, 1.0]] * 2 + [[-9.0, 9] * 4] * 2)
    for share in (0.75, 0.8, 0.85):  # 2, 1.6 and 1.2 of 8
        for seed in range(20):
            chosen = mixed_rollouts(advantages, 8, share, seeded(seed))
            if share == 0.75:
                assert chosen[0, 0] and chosen[0, 7] and chosen[1, 0] and chosen[1, 7]
            else:  # as without any share: the two wide groups first, then the extremes of the others
                assert torch.equal(chosen, mixed_rollouts(advantages, 8, 0.999, seeded(seed)))


@pytest.mark.parametrize("cross", [True, False])
def test_random_rollouts(cross):
    advantages = torch.arange(12.0).view(3, 4)
    masks = [random_rollouts(advantages, 2, cross, seeded(seed)) for seed in range(50)]
    assert {int(m.sum()) for m in masks} == {6}
    assert ({tuple(m.sum(1).tolist()) for m in masks} == {(2, 2, 2)}) is (not cross)
    shares, tolerance = frequencies(lambda g: random_rollouts(advantages, 2, cross, g))
    assert (shares - 0.5).abs().max() < tolerance


# --- tokens ----------------------------------------------------------------------------------------------------------

tokens = st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 5), st.integers(0, 3)), max_size=40)


def ceiling(percent, count):
    return max(1, -(-percent * count // 100))


def best_by_hand(scores, percent):
    """The lowest score that is taken, by sorting."""
    return sorted(scores, reverse=True)[ceiling(percent, len(scores)) - 1] if scores else None


@given(tokens, st.integers(1, 100))
def test_tokens_of_the_batch_are_pooled(rows, percent):
    a, h = (torch.tensor([row[i] for row in rows], dtype=torch.float64) for i in (0, 1))
    chosen = select_tokens(a, h, percent / 100)
    scores = [abs(row[0]) * row[1] for row in rows]
    assert int(chosen.sum()) == (ceiling(percent, len(rows)) if rows else 0)
    assert all(scores[i] >= best_by_hand(scores, percent) for i in chosen.nonzero()[:, 0].tolist())


@given(tokens, st.integers(1, 100))
def test_tokens_of_each_sequence(rows, percent):
    a, h = (torch.tensor([row[i] for row in rows], dtype=torch.float64) for i in (0, 1))
    ids = torch.tensor([row[2] for row in rows], dtype=torch.long)  # in any order
    chosen = select_tokens(a, h, percent / 100, ids).tolist()
    for sequence in {row[2] for row in rows}:
        own = [i for i, row in enumerate(rows) if row[2] == sequence]
        scores = {i: abs(rows[i][0]) * rows[i][1] for i in own}
        picked = [i for i in own if chosen[i]]
        assert len(picked) == ceiling(percent, len(own))
        assert all(scores[i] >= best_by_hand(list(scores.values()), percent) for i in picked)


def test_advantage_times_entropy_ranks():
    advantages, entropies = torch.tensor([-2.0, 1.0, 0.1, 0.0]), torch.tensor([0.6, 1.0, 9.0, 99.0])
    assert select_tokens(advantages, entropies, 0.25).tolist() == [True, False, False, False]
    assert select_tokens(advantages, entropies, 0.5).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("count", "fraction", "kept"),
    [(100, 0.07, 7), (100, 0.29, 29), (3, 1 / 3, 1), (10, 0.05, 1), (1000, 0.0011, 2), (7, 1.0, 7), (5, 1e-12, 1)],
)
def test_the_share_is_rounded_up_from_the_number_that_was_meant(count, fraction, kept):
    scores = torch.rand(count, generator=seeded(0))
    assert int(select_tokens(scores, scores, fraction).sum()) == kept
    ids = torch.zeros(count, dtype=torch.long)
    assert int(select_tokens(scores, scores, fraction, ids).sum()) == kept


@pytest.mark.parametrize("ids", [None, torch.zeros(12).long(), torch.arange(3).repeat_interleave(4)])
def test_ties_of_tokens_prefer_no_place(ids):
    scores = torch.ones(12)
    shares, tolerance = frequencies(lambda g: select_tokens(scores, scores, 0.25, ids, g))
    assert (shares - 0.25).abs().max() < tolerance
    scores = torch.tensor([2.0, 1, 1, 0, 2, 1, 1, 0, 2, 1, 1, 0])  # what is above the tie is always taken
    shares, tolerance = frequencies(lambda g: select_tokens(scores, torch.ones(12), 0.5, ids, g))
    assert (shares - torch.tensor([1, 0.5, 0.5, 0] * 3)).abs().max() < tolerance
    same = [select_tokens(scores, scores, 0.5, ids, seeded(3)) for _ in range(2)]
    assert torch.equal(*same)


def test_no_tokens():
    none = torch.zeros(0)
    assert select_tokens(none, none, 0.5).shape == (0,)
    assert select_tokens(none, none, 0.5, none.long()).shape == (0,)


@pytest.mark.parametrize(
    ("advantages", "entropies", "fraction", "ids", "message"),
    [
        (torch.zeros(3), torch.zeros(3), 0.0, None, "fraction"),
        (torch.zeros(3), torch.zeros(3), 1.01, None, "fraction"),
        (torch.zeros(3), torch.zeros(3), math.nan, None, "fraction"),
        (torch.zeros(3), torch.zeros(2), 0.5, None, "one entropy per advantage"),
        (torch.zeros(3), torch.zeros(3), 0.5, torch.zeros(2).long(), "sequence id per token"),
        (torch.zeros(1, 3), torch.zeros(1, 3), 0.5, None, "one priority"),
        (torch.ones(3), torch.tensor([1.0, math.nan, 2.0]), 0.5, None, "finite"),
    ],
)
def test_impossible_token_selections(advantages, entropies, fraction, ids, message):
    with pytest.raises(ValueError, match=message):
        select_tokens(advantages, entropies, fraction, ids)


# --- as the configuration words them ---------------------------------------------------------------------------------

REWARDS = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0], [1.0, 1, 1, 1, 1, 0, 0, 0], [0.0, 0, 0, 0, 0, 0, 0, 0]])
ALL = torch.ones(3, 8, dtype=torch.bool)


def config(*overrides):
    return load_config([], ["rollout.num_generations=8", "schedule.n_init=4", "schedule.n_final=8", *overrides])


def test_d3s_keeps_across_the_batch_what_was_normalised_over_all():
    advantages, kept = downsample_rollouts(config(), REWARDS, ALL, 4, seeded(0))
    metrics = selection_metrics("group", REWARDS, advantages, kept)
    assert torch.equal(advantages, group_advantages(REWARDS))
    assert variance(advantages[kept].tolist()) == pytest.approx(
        variance(advantages[select_rollouts(advantages, 4)].tolist())
    )
    assert not kept[2].any()  # a group of equal rewards has nothing to teach
    per_group = kept.sum(1).tolist()
    expected = {
        "advantage/var_all": variance(advantages.flatten().tolist()),
        "advantage/var_selected": variance(advantages[kept].tolist()),
        "advantage/mean_selected": sum(advantages[kept].tolist()) / 12,
        "selection/usefulness": 1.0,
        "selection/effective_groups": 12**2 / sum(n * n for n in per_group),
        "selection/rollouts": 12,
        "selection/rollouts_total": 24,
    }
    assert metrics == pytest.approx(expected, rel=1e-5)


def test_d3s_i_keeps_as_many_of_every_group():
    advantages, kept = downsample_rollouts(config("selector.cross_group=false"), REWARDS, ALL, 4, seeded(0))
    metrics = selection_metrics("group", REWARDS, advantages, kept)
    assert kept.sum(1).tolist() == [4, 4, 4]
    assert metrics["selection/usefulness"] == pytest.approx(2 / 3)
    assert metrics["selection/effective_groups"] == pytest.approx(3)
    for row in range(3):
        best = best_variance(advantages[row].tolist(), 4)
        assert variance(advantages[row][kept[row]].tolist()) == pytest.approx(best, abs=1e-12)


def test_pods_normalises_what_it_kept():
    """Of each group two or one right and the rest wrong; mean and Bessel's deviation over those four alone."""
    pods = config("selector.cross_group=false", "selector.normalize=after")
    used, kept = downsample_rollouts(pods, REWARDS, ALL, 4, seeded(0))
    assert kept.sum(1).tolist() == [4, 4, 4]
    one_right = [(r - 0.25) / (0.5 + 1e-4) for r in (1, 0, 0, 0)]
    two_right = [(r - 0.5) / (math.sqrt(1 / 3) + 1e-4) for r in (1, 1, 0, 0)]
    for row, expected in enumerate((one_right, two_right, [0, 0, 0, 0])):
        assert sorted(used[row][kept[row]].tolist(), reverse=True) == pytest.approx(expected, abs=1e-6)
        assert all((r > 0.5) == (a > 0) for r, a in zip(REWARDS[row][kept[row]], used[row][kept[row]]) if row < 2)
    assert not used[~kept].any()


def test_batch_scale_and_none_are_passed_on():
    for scale in ("batch", "none"):
        used, _ = downsample_rollouts(config(f"reward.scale_rewards={scale}"), REWARDS, ALL, 4, seeded(0))
        assert torch.equal(used, group_advantages(REWARDS, scale))


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["selector.cross_group=false"],
        ["selector.cross_share=0.5"],
        ["selector.rollouts=random"],
        ["selector.cross_group=false", "selector.normalize=after"],
    ],
)
def test_who_is_not_eligible_is_never_kept(overrides):
    eligible = ALL.clone()
    eligible[0, 0] = eligible[1, 5] = False  # the only right answer of the first group among them
    for seed in range(20):
        used, kept = downsample_rollouts(config(*overrides), REWARDS, eligible, 4, seeded(seed))
        metrics = selection_metrics("group", REWARDS, used, kept)
        assert not kept[~eligible].any() and not used[~eligible].any()
        assert metrics["selection/rollouts"] == int(kept.sum())
    nobody = torch.zeros_like(ALL)
    advantages, kept = downsample_rollouts(config(*overrides), REWARDS, nobody, 4, seeded(0))
    metrics = selection_metrics("group", REWARDS, advantages, kept)
    assert not kept.any() and metrics["selection/rollouts"] == 0
    assert all(math.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("normalize", ["before", "after"])
def test_no_place_is_given_to_who_is_not_eligible(normalize):
    """Half of the failures, an extreme of their groups, may not be trained: others take every place that they can."""
    eligible = ALL.clone()
    eligible[0, 1:5] = eligible[1, 5:] = False
    within = config("selector.cross_group=false", f"selector.normalize={normalize}")
    for seed in range(20):
        _, kept = downsample_rollouts(within, REWARDS, eligible, 4, seeded(seed))
        assert kept.sum(1).tolist() == [4, 4, 4]
        _, kept = downsample_rollouts(within, REWARDS, eligible, 6, seeded(seed))
        assert kept.sum(1).tolist() == [4, 5, 6]
        _, kept = downsample_rollouts(config(), REWARDS, eligible, 5, seeded(seed))
        assert int(kept.sum()) == 15


@given(tables(3, 6), st.data(), st.sampled_from(["group", "batch", "none"]))
def test_pods_normalises_over_the_eligible_that_it_kept(table, data, scale):
    keep, rewards = data.draw(st.integers(2, len(table[0]))), torch.tensor(table, dtype=torch.float64)
    eligible = torch.tensor([[data.draw(st.booleans()) for _ in row] for row in table])
    overrides = [f"rollout.num_generations={len(table[0])}", "schedule.n_init=2", "schedule.n_final=null"]
    pods = load_config(["configs/method/pods.yaml"], [*overrides, f"reward.scale_rewards={scale}"])
    used, kept = downsample_rollouts(pods, rewards, eligible, keep, seeded(0))
    assert kept.sum(1).tolist() == eligible.sum(1).clamp(max=keep).tolist()
    assert not used[~kept].any()
    pooled = rewards[kept].tolist()
    for row, chosen, got in zip(rewards, kept, used):
        own = row[chosen].tolist()
        if len(set(own)) > 1:
            spread = {"group": own, "batch": pooled, "none": None}[scale]
            spread = 1 if spread is None else statistics.stdev(spread) + 1e-4
            expected = [(r - statistics.fmean(own)) / spread for r in own]
            assert got[chosen].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)
        else:
            assert not got.any()


def test_zero_advantages_can_be_left_out():
    for n in (4, 8):
        advantages, kept = downsample_rollouts(config("selector.drop_zero_advantage=true"), REWARDS, ALL, n, seeded(0))
        metrics = selection_metrics("group", REWARDS, advantages, kept)
        assert metrics["selection/usefulness"] == 1 and not kept[2].any()
    assert kept.sum(1).tolist() == [8, 8, 0]


def test_random_is_the_control_with_the_same_numbers():
    advantages, kept = downsample_rollouts(config("selector.rollouts=random"), REWARDS, ALL, 4, seeded(3))
    metrics = selection_metrics("group", REWARDS, advantages, kept)
    assert metrics["selection/rollouts"] == 12
    _, again = downsample_rollouts(config("selector.rollouts=random"), REWARDS, ALL, 4, seeded(4))
    assert not torch.equal(kept, again)


def test_cross_share_is_passed_on():
    for share in (0.0, 0.5):
        advantages, kept = downsample_rollouts(config(f"selector.cross_share={share}"), REWARDS, ALL, 4, seeded(5))
        assert torch.equal(kept, mixed_rollouts(advantages, 4, share, seeded(5)))


def some_tokens():
    lengths = [5, 1, 10, 4]
    draw = torch.rand(2, sum(lengths), generator=seeded(1))
    batch = Batch([[1]] * 4, [[2] * n for n in lengths], draw[0] - 0.5, draw[1], 2 * draw[1])
    return batch, lengths


@pytest.mark.parametrize("scope", ["batch", "sample"])
@pytest.mark.parametrize("kind", ["advantage_entropy", "entropy", "random"])
def test_choices_of_tokens(kind, scope):
    batch, lengths = some_tokens()
    selector = config(f"selector.tokens={kind}", f"selector.token_scope={scope}").selector
    chosen = downsample_tokens(selector, batch, 0.3, seeded(0))
    counts = [int(part.sum()) for part in chosen.split(lengths)]
    assert sum(counts) == 6 if scope == "batch" else counts == [2, 1, 3, 2]
    ids = batch.sequence_ids if scope == "sample" else None
    score = {"advantage_entropy": batch.advantages.abs() * batch.entropies, "entropy": batch.entropies}.get(kind)
    if score is not None:
        assert torch.equal(chosen, top_tokens(score, 0.3, ids, seeded(0)))
        assert not torch.equal(
            chosen, downsample_tokens(config("selector.tokens=random").selector, batch, 0.3, seeded(0))
        )


def test_all_tokens():
    batch, _ = some_tokens()
    batch.entropies[:] = math.nan  # not needed
    assert downsample_tokens(config().selector, batch, 1.0, seeded(0)).all()
