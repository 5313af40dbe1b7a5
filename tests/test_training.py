"""Training finds the spectrum, repeats itself bit by bit, survives interruptions and refuses bad input."""

import itertools
import json
import math
import os
import subprocess
import sys

import pytest
import torch
from helpers import Lookup, Table, gaussian_pairs, halved, seeded_operator, small_operator
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from ncprob import ConditionalDistribution, train
from ncprob._files import _writer
from ncprob.encoders import MLP
from ncprob.losses import LOSSES, best_operator, orthonormality_penalty, u_statistic_loss
from ncprob.optimization import History, Runtime, Schedule, minimize
from ncprob.pairs import TensorPairs
from ncprob.training import resolve_device

QUICK = {"max_steps": 40, "batch_size": 16, "validate_every": 10, "device": "cpu", "progress": False}


class Faulty(nn.Module):
    """An encoder that fails, or gives NaN, the n-th time it is trained."""

    def __init__(self, encoder, at=None, error=None):
        super().__init__()
        self.encoder, self.at, self.error, self.calls = encoder, at, error, 0

    def forward(self, x):
        self.calls += self.training
        if self.training and self.calls == self.at:
            if self.error is not None:
                raise self.error
            return self.encoder(x) * math.nan
        return self.encoder(x)


class DictData(Dataset):
    """Items with a dictionary as x."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"value": self.x[i]}, self.y[i]


class DictEncoder(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x):
        return self.encoder(x["value"])


def faulty_operator(at=None, error=None):
    plain = small_operator(seed=1)
    return seeded_operator(Faulty(plain.x_encoder, at, error), plain.y_encoder, 3, seed=1)


def weights_of(operator):
    return torch.cat([parameter.detach().flatten() for parameter in operator.parameters()])


def same_history(first, second):
    """Equal in all but the seconds."""
    names = ("step", "loss", "validation_loss", "learning_rate", "best_step", "stopped_early")
    return all(getattr(first, name) == getattr(second, name) for name in names)


def validation_loss(operator, pairs):
    with torch.no_grad():
        u, v = operator.encode(*pairs)
    return u_statistic_loss(u.double(), v.double(), operator.singular_values.detach().double()).item()


# ---------------------------------------------------------------- what is learned


def test_gaussian_pair_has_powers_of_the_correlation_as_singular_values():
    """Singular values ρ, ρ², ρ³ within 0.03.

    For n = 20,000 even whitened Hermite features, which are exact, scatter over samples with standard
    deviations of 0.003, 0.008 and 0.018; training at this length loses another 0.01 to 0.02 of the third.
    Hence a fixed, ordinary sample.
    """
    pairs = gaussian_pairs(20_000, rho=0.8, seed=5)
    operator = small_operator(rank=5, seed=0, width=32)
    train(operator, pairs, max_steps=400, batch_size=1024, learning_rate=5e-3, device="cpu", progress=False)
    values = operator.postprocess(pairs).singular_values[:3]
    torch.testing.assert_close(values, torch.tensor([0.8, 0.64, 0.512]), atol=0.03, rtol=0)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_every_loss_comes_close_to_the_optimum(loss):
    """A Gaussian pair with rank 2: the optimum is −(ρ² + ρ⁴) = −1.05; half of it is far from the start at about 0.

    4,000 held-out pairs know the loss to about 0.05.
    """
    operator = small_operator(rank=2, seed=0, width=16)
    held_out = gaussian_pairs(4000, seed=1)
    history = train(
        operator, gaussian_pairs(4000), loss=loss, validation_pairs=held_out, max_steps=200, batch_size=256,
        learning_rate=1e-2, validate_every=50, device="cpu", progress=False,
    )  # fmt: skip
    assert -1.2 < min(history.validation_loss) < -0.8
    assert operator.postprocess(gaussian_pairs(4000)).singular_values[0].item() == pytest.approx(0.8, abs=0.05)


def test_singular_values_are_trained():
    """With fixed orthonormal features the best s_i is the exact singular value of the table."""
    table = Table.random(3, 3, seed=1)
    u, values, v = table.svd(2)
    operator = seeded_operator(Lookup(u.float()), Lookup(v.float()), 2, seed=0)
    pairs = tuple(states[:, None] for states in table.sample(4000, seed=0))
    train(operator, pairs, weight_decay=0.0, **QUICK | {"max_steps": 300, "learning_rate": 2e-2, "batch_size": 1000})
    # Over samples of 4,000 pairs E[u_i v_i] has a standard deviation of 0.016. Five of them.
    torch.testing.assert_close(operator.singular_values.detach().double(), values, atol=0.08, rtol=0)


def test_gate_strength_closes_gates():
    pairs = gaussian_pairs(200)
    sums = []
    for strength in (0.0, 1.0):
        operator = small_operator(input_gate=True)
        train(operator, pairs, gate_strength=strength, **QUICK | {"max_steps": 80})
        sums.append(operator.x_encoder[0].penalty().item())
    assert sums[1] < sums[0] - 0.01


def test_gamma_pulls_features_towards_orthonormality():
    pairs = gaussian_pairs(1000)
    gaps = []
    for gamma in (0.0, 1.0):
        operator = small_operator()
        train(operator, pairs, gamma=gamma, **QUICK | {"max_steps": 150, "batch_size": 256, "learning_rate": 1e-2})
        gaps.append(orthonormality_penalty(*operator.encode(*pairs)).item())
    assert gaps[1] < gaps[0] - 0.5


def test_a_trained_operator_called_on_x_gives_a_distribution():
    x, y = gaussian_pairs(200)
    operator = small_operator()
    train(operator, (x, y), **QUICK)
    law = operator.postprocess((x, y))(x[:3], y)
    assert isinstance(law, ConditionalDistribution)
    assert len(law) == 3


# ---------------------------------------------------------------- repeatability


def run(seed=0, **settings):
    operator = small_operator(seed=1)
    history = train(operator, gaussian_pairs(64), random_state=seed, **QUICK | settings)
    return weights_of(operator), history


def test_one_seed_gives_one_result():
    (first, first_history), (second, second_history) = run(), run()
    assert torch.equal(first, second)
    assert same_history(first_history, second_history)
    assert not torch.equal(first, run(seed=1)[0])


def test_global_state_of_torch_is_untouched():
    state, dtype, grad = torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    run(validation_pairs=gaussian_pairs(20, seed=1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == dtype
    assert torch.is_grad_enabled() == grad


def test_result_does_not_depend_on_the_global_generator():
    first = run()[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1234)
        assert torch.equal(run()[0], first)


@pytest.mark.parametrize("progress", ["auto", False])
def test_training_is_silent_without_a_terminal(progress, capsys):
    run(progress=progress)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_progress_can_be_forced(capsys):
    run(progress=True)
    assert "operator" in capsys.readouterr().err


# ---------------------------------------------------------------- inputs


def test_tensors_and_data_sets_give_the_same_result():
    pairs = gaussian_pairs(64)
    operator = small_operator(seed=1)
    train(operator, TensorDataset(*pairs), **QUICK)
    assert torch.equal(weights_of(operator), run()[0])


def test_a_data_loader_trains():
    operator = small_operator(seed=1)
    before = weights_of(operator)
    loader = DataLoader(TensorDataset(*gaussian_pairs(70)), batch_size=20)  # the last batch has ten
    history = train(operator, loader, validation_pairs=loader, **QUICK)
    assert history.n_steps == 40
    assert all(map(math.isfinite, history.loss + history.validation_loss))
    assert not torch.equal(weights_of(operator), before)


def test_dictionaries_give_the_result_of_their_tensors():
    x, y = gaussian_pairs(64)
    for pairs in (({"value": x}, y), DictData(x, y)):
        operator = small_operator(seed=1)
        operator.x_encoder = DictEncoder(operator.x_encoder)
        train(operator, pairs, **QUICK)
        assert torch.equal(weights_of(operator), run()[0])


def test_one_encoder_may_serve_both_sides(tmp_path):
    encoder = MLP(1, (8,), 3)
    operator = seeded_operator(encoder, encoder, 3, seed=0)
    history = train(operator, gaussian_pairs(64), checkpoint_dir=tmp_path, **QUICK)
    assert math.isfinite(history.loss[-1])
    assert operator.x_encoder is operator.y_encoder


def test_weights_draw_rows_in_proportion():
    """Rows of weight zero are never seen: NaN in them does no harm."""
    x, y = gaussian_pairs(64)
    x[:16] = math.nan
    weights = torch.ones(64)
    weights[:16] = 0
    operator = small_operator(seed=1)
    history = train(operator, (x, y, weights), **QUICK)
    assert all(map(math.isfinite, history.loss))


def test_training_undoes_the_postprocessing_first():
    pairs = gaussian_pairs(64)
    operator = small_operator(seed=1).postprocess(pairs)
    train(operator, pairs, **QUICK)
    assert operator.postprocessing == "none"
    assert torch.equal(weights_of(operator), run()[0])


# ---------------------------------------------------------------- validation and early stopping


@pytest.mark.parametrize("loss", ["covariance", "cross_fitted"])
def test_the_best_weights_are_kept(loss):
    pairs, held_out = gaussian_pairs(40, rho=0.3), gaussian_pairs(200, rho=0.3, seed=1)
    operator = small_operator(width=32)
    history = train(
        operator, pairs, loss=loss, validation_pairs=held_out, learning_rate=2e-2, weight_decay=0.0, gamma=0.0,
        patience=5, **QUICK | {"max_steps": 300},
    )  # fmt: skip
    best = min(history.validation_loss)
    assert history.stopped_early  # forty pairs are soon overfitted
    assert history.n_steps < 300
    assert best < history.validation_loss[-1]
    assert history.best_step == history.step[history.validation_loss.index(best)]
    if loss == "covariance":
        assert validation_loss(operator, held_out) == pytest.approx(best, rel=1e-9)
    else:
        with torch.no_grad():
            (fit_u, fit_v), (u, v) = ([part.double() for part in operator.encode(*p)] for p in (pairs, held_out))
        score = u_statistic_loss(u @ best_operator(fit_u, fit_v), v, torch.ones(3, dtype=torch.float64))
        assert score.item() == pytest.approx(best, rel=1e-9)


def scripted(scores, **settings):
    """Minimise a quadratic while `score` follows a script; weights at every validation and at the end."""
    model, seen, script = nn.Linear(1, 1), [], itertools.chain(scores, itertools.repeat(math.inf))
    x = torch.linspace(-1, 1, 8)[:, None]

    def score():
        seen.append(weights_of(model))
        return next(script)

    schedule = Schedule(**{"max_steps": 100, "batch_size": 4, "validate_every": 10, "patience": 2} | settings)
    history = minimize(
        model,
        lambda a, b: (model(a) - b).square().mean(),
        TensorPairs(x, 2 * x),
        score=score,
        schedule=schedule,
        runtime=Runtime(progress=False),
        settings={},
    )
    return history, seen, weights_of(model)


def test_patience_counts_validations_without_improvement():
    history, seen, final = scripted([3.0, 1.0, 2.0, 2.5, 0.0])
    assert history.stopped_early
    assert history.step == [10, 20, 30, 40]
    assert history.best_step == 20
    assert torch.equal(final, seen[1])


def test_without_early_stopping_all_steps_are_done():
    history, seen, final = scripted([3.0, 1.0] + [2.0] * 8, early_stopping=False)
    assert not history.stopped_early
    assert history.n_steps == 100
    assert torch.equal(final, seen[1])


def test_without_validation_the_last_weights_count():
    short = run(max_steps=40)[1]
    assert short.best_step == 40
    assert short.validation_loss == short.loss


def test_the_last_step_is_validated():
    assert run(max_steps=25)[1].step == [10, 20, 25]


def test_schedule_rises_and_falls():
    schedule = Schedule(max_steps=200, learning_rate=0.1, warmup_fraction=0.1)
    rates = [schedule.rate(step) for step in range(200)]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(0.1)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0 < rates[-1] < 1e-4


# ---------------------------------------------------------------- recovery


@pytest.mark.parametrize("at", [1, 15, 40])
@pytest.mark.parametrize("with_validation", [False, True])
def test_one_nan_does_not_spoil_the_run(at, with_validation):
    operator = faulty_operator(at=at)
    before = weights_of(operator)
    held_out = gaussian_pairs(50, seed=1) if with_validation else None
    history = train(operator, gaussian_pairs(64), validation_pairs=held_out, **QUICK)
    assert torch.isfinite(weights_of(operator)).all()
    assert [math.isfinite(loss) for loss in history.loss] == [(at - 1) // 10 != k for k in range(4)]
    assert not torch.equal(weights_of(operator), before)
    clean = train(faulty_operator(), gaussian_pairs(64), validation_pairs=held_out, **QUICK).learning_rate
    assert history.learning_rate[-1] == clean[-1] / 2


def test_float32_and_float64_agree():
    """Rounding of 10⁻⁷ grows over 40 steps; what it moves is far below the error of the fit."""
    single, double = small_operator(), small_operator().double()
    x, y = gaussian_pairs(200)
    train(single, (x, y), **QUICK)
    train(double, (x.double(), y.double()), **QUICK)
    for operator, dtype in ((single, torch.float32), (double, torch.float64)):
        operator.postprocess((x.to(dtype), y.to(dtype)))
    torch.testing.assert_close(single.singular_values.double(), double.singular_values, atol=1e-3, rtol=0)
    atoms = y.double()
    single_law, double_law = single.distribution(x[:20], y), double.distribution(x[:20].double(), atoms)
    torch.testing.assert_close(single_law.mean(), double_law.mean(), atol=1e-2, rtol=0)
    torch.testing.assert_close(single_law.cdf([-1.0, 0.0, 1.0]), double_law.cdf([-1.0, 0.0, 1.0]), atol=1e-2, rtol=0)


def test_nan_without_end_is_an_error():
    x, y = gaussian_pairs(64)
    with pytest.raises(ValueError, match=r"The loss was never finite .* Look for NaN or huge values in the inputs"):
        train(small_operator(), (x * math.nan, y), **QUICK)


# ---------------------------------------------------------------- checkpoints


def checkpointed(directory, at=None, error=None, **settings):
    operator = faulty_operator(at, error)
    held_out = gaussian_pairs(50, seed=1)
    history = train(
        operator, gaussian_pairs(64), validation_pairs=held_out, checkpoint_dir=directory, **QUICK | settings
    )
    return weights_of(operator), history, operator.x_encoder.calls


@pytest.mark.parametrize("at", [5, 11, 27, 40])
@pytest.mark.parametrize("error", [RuntimeError("power cut"), KeyboardInterrupt()])
def test_an_interrupted_run_goes_on_bit_by_bit(at, error, tmp_path):
    expected, expected_history, _ = checkpointed(None)
    with pytest.raises(type(error)):
        checkpointed(tmp_path, at, error)
    weights, history, calls = checkpointed(tmp_path)
    assert torch.equal(weights, expected)
    assert same_history(history, expected_history)
    assert calls == 40 - (at - 1) // 10 * 10  # only the steps after the last checkpoint are repeated
    assert [path.name for path in tmp_path.iterdir()] == ["operator.safetensors"]


def test_the_best_weights_of_before_the_interruption_still_count(tmp_path):
    x, y = gaussian_pairs(200)

    def go(directory, at=None):
        """Held-out pairs of the opposite law: learning only makes the score worse."""
        operator = faulty_operator(at, RuntimeError("power cut"))
        history = train(
            operator,
            (x, y),
            validation_pairs=(x, -y),
            checkpoint_dir=directory,
            **QUICK | {"early_stopping": False, "learning_rate": 1e-2},
        )
        return weights_of(operator), history

    expected, expected_history = go(None)
    assert expected_history.best_step == 10
    with pytest.raises(RuntimeError, match="power cut"):
        go(tmp_path, at=35)
    weights, history = go(tmp_path)
    assert torch.equal(weights, expected)
    assert same_history(history, expected_history)


def test_a_run_that_recovered_goes_on_bit_by_bit(tmp_path):
    """NaN at step 5 halves the rate and clears the optimiser; then a failure at step 25."""

    class TwiceFaulty(Faulty):
        def forward(self, x):
            if self.training and self.calls + 1 == self.second:
                raise RuntimeError("power cut")
            return super().forward(x)

    def go(directory, second, done=0):
        operator = faulty_operator()
        encoder = TwiceFaulty(operator.x_encoder.encoder, at=5)
        encoder.second, encoder.calls = second, done
        operator.x_encoder = encoder
        history = train(operator, gaussian_pairs(64), checkpoint_dir=directory, **QUICK)
        return weights_of(operator), history

    expected, expected_history = go(None, None)
    with pytest.raises(RuntimeError, match="power cut"):
        go(tmp_path, 25)
    weights, history = go(tmp_path, None, done=20)
    assert torch.equal(weights, expected)
    assert history.learning_rate == expected_history.learning_rate
    assert history.loss[1:] == expected_history.loss[1:]
    assert math.isnan(history.loss[0])


def test_a_finished_checkpoint_returns_at_once(tmp_path):
    weights, history, _ = checkpointed(tmp_path)
    again, repeated, calls = checkpointed(tmp_path)
    assert calls == 0
    assert torch.equal(again, weights)
    assert repeated == history  # seconds too


def test_an_early_stop_is_remembered(tmp_path):
    settings = {"patience": 1, "learning_rate": 0.5, "max_steps": 400}
    weights, history, _ = checkpointed(tmp_path, **settings)
    assert history.stopped_early
    again, repeated, calls = checkpointed(tmp_path, **settings)
    assert calls == 0
    assert torch.equal(again, weights)
    assert repeated == history


@pytest.mark.parametrize("content", [b"", b"hello", b"\x08" + bytes(7) + b"{broken}"])
def test_a_damaged_checkpoint_is_refused(content, tmp_path):
    path = tmp_path / "operator.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"`checkpoint_dir` holds .* damaged: operator.safetensors"):
        checkpointed(tmp_path)
    assert path.read_bytes() == content


def test_a_truncated_checkpoint_is_refused(tmp_path):
    checkpointed(tmp_path)
    path = tmp_path / "operator.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="`checkpoint_dir` holds"):
        checkpointed(tmp_path)


@pytest.mark.parametrize("facts", [None, {"other": "1"}, {"ncprob": "no json"}, {"ncprob": json.dumps({"format": 99})}])
def test_a_foreign_checkpoint_is_refused(facts, tmp_path):
    save_file({"model.w": torch.zeros(2)}, tmp_path / "operator.safetensors", metadata=facts)
    with pytest.raises(ValueError, match="`checkpoint_dir` holds"):
        checkpointed(tmp_path)


def test_the_checkpoint_of_another_version_is_told_as_such(tmp_path):
    facts = {"ncprob": json.dumps({"format": 2, "identity": "other"})}
    save_file({"model.w": torch.zeros(2)}, tmp_path / "operator.safetensors", metadata=facts)
    with pytest.raises(ValueError, match="written by another version of ncprob"):
        checkpointed(tmp_path)


def test_only_what_killed_fits_left_is_removed(tmp_path):
    """A file that a living process writes stays, unless it is old; that of a process that has ended goes."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine = _writer().partition("-")[0]
    names = {
        "mine": f"{machine}-{os.getpid()}", "ended": f"{machine}-{ended.pid}", "far": f"0-{ended.pid}", "old": "0-1"
    }  # fmt: skip
    paths = {name: tmp_path / f".operator.safetensors.{writer}.abc.partial" for name, writer in names.items()}
    for path in paths.values():
        path.touch()
    os.utime(paths["old"], (0, 0))
    checkpointed(tmp_path)
    assert {name for name, path in paths.items() if path.exists()} == {"mine", "far"}


@pytest.mark.parametrize(
    "changed",
    [
        {"learning_rate": 1e-3},
        {"random_state": 1},
        {"loss": "paired"},
        {"gamma": 0.5},
        {"max_steps": 41},
        {"patience": 3},
    ],
)
def test_the_checkpoint_of_other_settings_is_refused(changed, tmp_path):
    checkpointed(tmp_path)
    with pytest.raises(ValueError, match="`checkpoint_dir` holds the checkpoint of another fit"):
        checkpointed(tmp_path, **changed)


def test_the_checkpoint_of_other_data_or_weights_is_refused(tmp_path):
    def go(n=64, held_out_seed=1, seed=0):
        held_out = gaussian_pairs(50, seed=held_out_seed)
        train(small_operator(seed=seed), gaussian_pairs(n), validation_pairs=held_out, checkpoint_dir=tmp_path, **QUICK)

    go()
    for changed in ({"n": 65}, {"held_out_seed": 2}, {"seed": 1}):
        with pytest.raises(ValueError, match="`checkpoint_dir` holds the checkpoint of another fit"):
            go(**changed)
    go()


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="power cut"):
        checkpointed(tmp_path, 15, RuntimeError("power cut"))
    before = (tmp_path / "operator.safetensors").read_bytes()

    def full(*_, **__):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("ncprob._files.os.replace", full)
        with pytest.raises(OSError, match="disk full"):
            checkpointed(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["operator.safetensors"]
    assert (tmp_path / "operator.safetensors").read_bytes() == before
    assert torch.equal(checkpointed(tmp_path)[0], checkpointed(None)[0])


def test_no_checkpoint_without_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpointed(None)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"loss": "covarince"}, ValueError, "`loss` must be one of .* Did you mean 'covariance'"),
        ({"gamma": -1.0}, ValueError, "`gamma` must lie in"),
        ({"gate_strength": -1.0}, ValueError, "`gate_strength` must lie in"),
        ({"learning_rate": 0.0}, ValueError, "`learning_rate` must lie in"),
        ({"learning_rate": "fast"}, TypeError, "`learning_rate` must be a number"),
        ({"weight_decay": -1.0}, ValueError, "`weight_decay` must lie in"),
        ({"gradient_clip": 0.0}, ValueError, "`gradient_clip` must lie in"),
        ({"max_steps": 0}, ValueError, "`max_steps` must be at least 1"),
        ({"max_steps": 1.5}, TypeError, "`max_steps` must be an integer"),
        ({"batch_size": 3}, ValueError, "`batch_size` must be at least 4"),
        ({"batch_size": 7, "loss": "cross_fitted"}, ValueError, "`batch_size` must be at least 8"),
        ({"patience": 0}, ValueError, "`patience` must be at least 1"),
        ({"validate_every": 0}, ValueError, "`validate_every` must be at least 1"),
        ({"random_state": 0.5}, TypeError, "`random_state` must be an integer"),
        ({"device": "abacus"}, ValueError, "`device` must be"),
    ],
)  # fmt: skip
def test_bad_settings_are_named(settings, error, message):
    operator = small_operator()
    before = weights_of(operator)
    with pytest.raises(error, match=message):
        train(operator, gaussian_pairs(20), **QUICK | settings)
    assert torch.equal(weights_of(operator), before)


@pytest.mark.parametrize("wrong", [torch.zeros(8, 1), 3, "pairs", None, {"x": 1, "y": 2}])
def test_what_is_not_pairs_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="`pairs` must"):
        train(small_operator(), wrong, **QUICK)


@pytest.mark.parametrize(("loss", "needed"), [("covariance", 4), ("cross_fitted", 8)])
def test_too_few_pairs_are_an_error(loss, needed):
    with pytest.raises(ValueError, match=f"`pairs` must hold at least {needed} pairs"):
        train(small_operator(), gaussian_pairs(needed - 1), loss=loss, **QUICK)
    history = train(small_operator(), gaussian_pairs(needed), loss=loss, **QUICK | {"max_steps": 1})
    assert math.isfinite(history.loss[0])


def test_too_few_validation_pairs_are_an_error():
    with pytest.raises(ValueError, match="`validation_pairs` must hold at least 4 pairs"):
        train(small_operator(), gaussian_pairs(20), validation_pairs=gaussian_pairs(3), **QUICK)


def test_unequal_lengths_are_an_error():
    with pytest.raises(ValueError, match="`pairs` must hold as many x as y; got 10 and 9"):
        train(small_operator(), (torch.zeros(10, 1), torch.zeros(9, 1)), **QUICK)


def test_a_loader_with_a_short_last_batch_is_an_error():
    loader = DataLoader(TensorDataset(*gaussian_pairs(18)), batch_size=16)
    with pytest.raises(ValueError, match=r"`pairs` must come in batches of at least 4 .* got a batch of 2.*drop_last"):
        train(small_operator(), loader, **QUICK)


def test_a_loader_without_a_batch_is_an_error():
    """It would be asked for its first one for ever."""
    loader = DataLoader(TensorDataset(*gaussian_pairs(18)), batch_size=20, drop_last=True)
    with pytest.raises(ValueError, match=r"`pairs` must come in batches; .* gives none: .* Make its batches"):
        train(small_operator(), loader, **QUICK)
    with pytest.raises(ValueError, match="`validation_pairs` must come in batches"):
        train(small_operator(), gaussian_pairs(20), validation_pairs=loader, **QUICK)


def test_a_loader_of_unknown_length_is_an_error():
    class Endless(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(TypeError, match=r"`pairs` must be a DataLoader whose Dataset has a length.* Endless has none"):
        train(small_operator(), DataLoader(Endless()), **QUICK)


def test_wrong_feature_width_is_an_error():
    operator = seeded_operator(MLP(1, (), 4), MLP(1, (), 3), 3, seed=0)
    with pytest.raises(ValueError, match="`x_encoder` must give features"):
        train(operator, gaussian_pairs(20), **QUICK)


def test_devices():
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="`device` is 'cuda'"):
            resolve_device("cuda")


def test_an_empty_history_has_no_steps():
    assert History().n_steps == 0


# ---------------------------------------------------------------- precision


@pytest.mark.parametrize("wrap", [lambda operator: operator, halved])
def test_autocast_around_training_changes_nothing(wrap):
    """It would keep casts of the first weights for all steps, so that nothing is learned."""
    pairs = gaussian_pairs(200)
    expected = train(wrap(small_operator()), pairs, validation_pairs=pairs, **QUICK)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        history = train(wrap(small_operator()), pairs, validation_pairs=pairs, **QUICK)
        assert torch.is_autocast_enabled("cpu")
    assert history.validation_loss == expected.validation_loss
