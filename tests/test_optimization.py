"""A population: networks trained together come out as if each had been trained alone."""

import math

import pytest
import torch
from helpers import normal

from ncprob.encoders import ParallelMLP
from ncprob.optimization import Population, Runtime, Schedule, minimize
from ncprob.pairs import TensorPairs

N_NETWORKS = 3
DECAYS = torch.tensor([0.0, 0.3, 3.0], dtype=torch.float64)
QUIET = Runtime(progress=False)
X, Y = normal(60, 2, seed=0), normal(60, 1, seed=1)
DATA = TensorPairs(X, Y)


def networks(seed=0, input_gate=True):
    """Three networks in double precision, so that rounding does not grow into differences."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ParallelMLP(N_NETWORKS, 2, (8,), 1, input_gate=input_gate).double()


def alone(model, k):
    """Network k of a population, as a population of one."""
    single = ParallelMLP(1, 2, (8,), 1, input_gate=True).double()
    single.load_state_dict({name: value[k : k + 1].clone() for name, value in model.state_dict().items()})
    return single


def squares(model, scale=1.0):
    """Sum over networks of the mean squared error; gradients of the networks do not meet."""
    return lambda x, y: scale * (model(x) - y).square().mean(dim=(1, 2)).sum()


def errors(model, x=X, y=Y):
    return lambda: (model(x).detach() - y).square().mean(dim=(1, 2))


def run(model, objective, score, decays=DECAYS, exempt=("gates",), runtime=QUIET, data=DATA, **settings):
    chosen = {"max_steps": 60, "batch_size": 16, "learning_rate": 1e-2, "validate_every": 10, "early_stopping": False}
    history = minimize(
        model, objective, data, score=score, schedule=Schedule(**chosen | settings), runtime=runtime, settings={},
        population=None if decays is None else Population(decays, exempt),
    )  # fmt: skip
    return model, history


def weights_of(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("gradient_clip", [0.05, 1e9])
def test_training_together_is_training_each_alone(gradient_clip):
    """Different weight decays, gradients clipped by network, best weights by network."""
    start, held = networks(), (normal(40, 2, seed=2), normal(40, 1, seed=3))
    together = networks()
    run(together, squares(together), errors(together, *held), gradient_clip=gradient_clip)
    for k in range(N_NETWORKS):
        single = alone(start, k)
        run(single, squares(single), errors(single, *held), DECAYS[k : k + 1], gradient_clip=gradient_clip)
        for a, b in zip(together.parameters(), single.parameters(), strict=True):
            torch.testing.assert_close(a[k : k + 1], b, atol=1e-9, rtol=1e-9)


def test_a_large_gradient_of_one_network_does_not_slow_the_others():
    """Clipped together, networks beside one with a thousandfold loss would hardly move in the same direction."""
    model, beside = networks(), networks()
    factor = torch.tensor([1.0, 1.0, 1e3], dtype=torch.float64)
    run(model, squares(model), None, gradient_clip=0.1)
    run(beside, lambda x, y: (factor * (beside(x) - y).square().mean(dim=(1, 2))).sum(), None, gradient_clip=0.1)
    for a, b in zip(model.parameters(), beside.parameters(), strict=True):
        torch.testing.assert_close(a[:2], b[:2], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_population_of_one_is_plain_adamw(decay):
    """AdamW decays before its step, a population after it: they differ by rate·decay·rate ≤ 5·10⁻⁵ per step."""
    single, plain = (alone(networks(), 0) for _ in range(2))
    run(single, squares(single), None, torch.tensor([decay], dtype=torch.float64), exempt=(), gradient_clip=1e9)
    run(plain, squares(plain), None, None, weight_decay=decay, gradient_clip=1e9)
    for a, b in zip(single.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10 if decay == 0 else 60 * 5e-5, rtol=0)


def test_weights_decay_by_their_own_factor_and_exempt_ones_do_not():
    """Without a gradient Adam stands still: network m shrinks by Π_t (1 − rate_t λ_m), gates stay."""
    model, schedule = networks(), Schedule(max_steps=60, learning_rate=1e-2)
    before = weights_of(model)
    run(model, lambda x, y: 0 * model(x).sum(), None)
    factors = torch.stack([(1 - schedule.rate(t) * DECAYS) for t in range(60)]).prod(dim=0)
    for name, after in model.named_parameters():
        expected = before[name] if name == "gates" else factors[:, None, None] * before[name]
        torch.testing.assert_close(after.detach(), expected, rtol=1e-12, atol=1e-12)


def test_frozen_parameters_do_not_decay():
    model = networks(input_gate=False)
    run(model, squares(model), None, exempt=())
    assert model.gates.eq(1).all()


def test_each_network_keeps_its_own_best_weights():
    """Scores are prescribed: the networks are best at validations 0, 2 and 5."""
    model, seen = networks(), []
    best = [0, 2, 5]
    scores = torch.tensor([[abs(v - b) for b in best] for v in range(6)], dtype=torch.float64)

    def score():
        seen.append(weights_of(model))
        return scores[len(seen) - 1]

    _, history = run(model, squares(model), score)
    for name, parameter in model.named_parameters():
        for k, validation in enumerate(best):
            assert torch.equal(parameter[k], seen[validation][name][k])
        assert not torch.equal(seen[0][name], seen[2][name])
    assert history.best_step == 60
    assert history.validation_loss == pytest.approx(scores.mean(dim=1).tolist())


def test_training_goes_on_while_any_network_improves():
    model, calls = networks(), []

    def score():
        calls.append(None)
        last = -float(min(len(calls), 7))  # only the last network improves, seven times
        return torch.tensor([0.0, 0.0, last])

    _, history = run(model, squares(model), score, early_stopping=True, patience=2, max_steps=200)
    assert history.best_step == 70
    assert history.n_steps == 90
    assert history.stopped_early


def test_norms_are_those_of_each_network():
    gradients = [normal(3, 2, 4, seed=4), normal(3, 1, 5, seed=5)]
    norms = Population(DECAYS).norms(gradients)
    for k in range(3):
        flat = torch.cat([g[k].flatten() for g in gradients])
        assert norms[k].item() == pytest.approx(flat.norm().item())


def test_a_score_that_is_not_finite_sends_training_back():
    model, calls = networks(), []

    def score():
        calls.append(None)
        return torch.tensor([0.0, math.nan, 0.0]) if len(calls) == 3 else errors(model)()

    _, history = run(model, squares(model), score)
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    schedule = Schedule(max_steps=60, learning_rate=1e-2)
    assert history.learning_rate[-1] == pytest.approx(schedule.rate(59) * (1 + 0.5 + 1) / 3)  # one of three networks
    assert history.recoveries == 1


def test_networks_beside_a_diverging_one_keep_what_they_have_just_learned():
    """Scores fall at every validation; in the fourth, network 1 diverges and goes back to its best weights."""
    model, seen = networks(), []

    def score():
        seen.append(weights_of(model))
        scores = torch.full((N_NETWORKS,), -float(len(seen)), dtype=torch.float64)
        if len(seen) == 4:
            scores[1] = math.nan
        return scores if len(seen) <= 4 else torch.zeros(N_NETWORKS)  # nothing better comes after

    run(model, squares(model), score)
    for name, parameter in model.named_parameters():
        for k, validation in enumerate([3, 2, 3]):
            assert torch.equal(parameter[k], seen[validation][name][k])
        assert name == "gates" or not torch.equal(seen[2][name], seen[3][name])


def spoiled(model, at, value, network=1):
    """Squared errors; in one step the loss of one network is `value` times its weights, which spoils its gradient."""
    calls = []

    def objective(x, y):
        calls.append(None)
        losses = (model(x) - y).square().mean(dim=(1, 2))
        factor = torch.ones(N_NETWORKS, dtype=losses.dtype)
        factor[network] = value if len(calls) == at else 1.0
        return (factor * losses).sum()

    return objective


@pytest.mark.parametrize("at", [1, 15, 60])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_concerns_its_own_network_only(at, value):
    expected = weights_of(run(model := networks(), squares(model), errors(model))[0])
    model = networks()
    _, history = run(model, spoiled(model, at, value), errors(model))
    assert history.recoveries == 1
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all()
        for k in (0, 2):
            assert torch.equal(parameter[k], expected[name][k])
    # the spoiled network goes on learning, from its best weights
    assert errors(model)()[1] < errors(networks())()[1]


def test_a_network_that_recovers_makes_half_steps():
    """A constant gradient makes AdamW move every weight by the learning rate."""
    model, seen = networks(), []

    def objective(x, y):
        seen.append(weights_of(model)["weights.0"])
        factor = torch.ones(N_NETWORKS, dtype=torch.float64)
        factor[1] = math.nan if len(seen) == 5 else 1.0
        return (factor * model.weights[0].sum(dim=(1, 2))).sum()

    run(model, objective, None, decays=torch.zeros(N_NETWORKS, dtype=torch.float64))
    moved = torch.stack(seen).diff(dim=0).abs().mean(dim=(2, 3))[40:]
    torch.testing.assert_close(moved[:, 0], moved[:, 2])
    torch.testing.assert_close(
        moved[:, 1] / moved[:, 0], torch.full((19,), 0.5, dtype=torch.float64), rtol=0.05, atol=0
    )


@pytest.mark.parametrize("population", [True, False])
def test_an_explosion_sends_back_to_the_best_weights(population):
    model, seen = networks(), []

    def score():
        seen.append(weights_of(model))
        values = torch.tensor([-3.0, -2.0, -1.0]) / len(seen)  # the first is the best
        if len(seen) == 3:
            values[1] = 1e10
        return values if population else values.sum()

    _, history = run(model, squares(model), score, decays=DECAYS if population else None)
    assert history.recoveries == 1
    assert len(seen) == 6
    before, after = seen[2]["weights.0"], seen[3]["weights.0"]
    best = seen[0]["weights.0"]
    for k in range(N_NETWORKS):
        went_back = k == 1 or not population
        assert ((after[k] - best[k]).norm() < (after[k] - before[k]).norm()) == went_back
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, seen[0][name])


def test_scores_may_rise_a_little():
    model, calls = networks(), []

    def score():
        calls.append(None)
        return torch.full((N_NETWORKS,), float(len(calls)))

    assert run(model, squares(model), score)[1].recoveries == 0


class Interrupted(Exception):
    pass


def checkpointed(path, at=None):
    """Train with decays and scores by network; raise at a step, if told so."""
    model, calls = networks(), []
    loss, held = squares(model), (normal(40, 2, seed=6), normal(40, 1, seed=7))

    def objective(x, y):
        calls.append(None)
        if len(calls) == at:
            raise Interrupted
        return loss(x, y)

    _, history = run(model, objective, errors(model, *held), runtime=Runtime(progress=False, checkpoint=path))
    return weights_of(model), history, len(calls)


@pytest.mark.parametrize("at", [11, 37, 60])
def test_a_resumed_population_repeats_an_uninterrupted_one_bit_by_bit(at, tmp_path):
    expected, expected_history, _ = checkpointed(None)
    with pytest.raises(Interrupted):
        checkpointed(tmp_path / "mixture", at)
    weights, history, calls = checkpointed(tmp_path / "mixture")
    assert calls == 60 - (at - 1) // 10 * 10
    assert history.validation_loss == expected_history.validation_loss
    for name, value in expected.items():
        assert torch.equal(weights[name], value)


def short_of_memory(model, most):
    """An objective for batches of at most `most` rows; counts them."""
    sizes, loss = [], squares(model)

    def objective(x, y):
        sizes.append(len(x))
        if len(x) > most:
            raise torch.OutOfMemoryError("out of memory")
        return loss(x, y)

    return objective, sizes


def test_a_device_without_memory_gets_smaller_batches(tmp_path):
    model = networks()
    objective, sizes = short_of_memory(model, most=20)
    with pytest.warns(
        UserWarning, match="ran out of memory .* batches of (30|15) rows from here on. Set a smaller"
    ) as told:
        _, history = run(
            model, objective, errors(model), batch_size=60, max_steps=20,
            runtime=Runtime(progress=False, checkpoint=tmp_path / "mixture"),
        )  # fmt: skip
    assert len(told) == 2  # 30 rows are too many as well
    assert history.n_steps == 20
    assert sizes[:2] == [60, 30]
    assert set(sizes[2:]) == {15}
    again = networks()
    # a resumed run knows what the device can hold
    objective, sizes = short_of_memory(again, most=20)
    run(
        again,
        objective,
        errors(again),
        batch_size=60,
        max_steps=20,
        runtime=Runtime(progress=False, checkpoint=tmp_path / "mixture"),
    )
    assert sizes == []
    assert all(torch.equal(value, weights_of(model)[name]) for name, value in weights_of(again).items())


def test_a_device_without_any_memory_is_an_error():
    model = networks()
    objective, _ = short_of_memory(model, most=0)
    with pytest.warns(UserWarning, match="ran out of memory"), pytest.raises(torch.OutOfMemoryError):
        run(model, objective, errors(model), batch_size=40)
