"""Encoders give features of the right shape; gates scale and switch off inputs."""

import pytest
import torch
from helpers import normal

from ncprob.encoders import MLP, InputGate, ParallelMLP, gate_penalty


@pytest.mark.parametrize("hidden_sizes", [(), (8,), (16, 4, 8)])
@pytest.mark.parametrize("input_gate", [False, True])
def test_mlp_maps_rows_to_features(hidden_sizes, input_gate):
    encoder = MLP(3, hidden_sizes, 5, input_gate=input_gate)
    x = normal(7, 3, seed=0, dtype=torch.float32)
    assert encoder(x).shape == (7, 5)
    torch.testing.assert_close(encoder(x)[2:3], encoder(x[2:3]))  # a row does not see its neighbours


def test_mlp_without_hidden_layers_is_linear():
    encoder, x = MLP(2, (), 3), normal(4, 2, seed=1, dtype=torch.float32)
    torch.testing.assert_close(encoder(x) + encoder(-x), 2 * encoder(torch.zeros_like(x)))


def test_open_gate_is_the_identity_and_closed_gate_blocks():
    gate, x = InputGate(2), normal(5, 2, seed=2, dtype=torch.float32)
    torch.testing.assert_close(gate(x), x)
    with torch.no_grad():
        gate.gates.copy_(torch.tensor([0.0, -2.0]))
    torch.testing.assert_close(gate(x), torch.stack([torch.zeros(5), -2 * x[:, 1]], dim=1))
    assert gate.penalty().item() == 2.0


def test_penalty_adds_all_gates_and_pulls_them_to_zero():
    model = torch.nn.ModuleList([MLP(2, (4,), 1, input_gate=True), MLP(3, (4,), 1, input_gate=True), MLP(1, (4,), 1)])
    penalty = gate_penalty(model)
    assert penalty.item() == 5.0
    penalty.backward()
    assert (model[0][0].gates.grad == 1).all()


def test_no_gates_no_penalty():
    assert gate_penalty(MLP(2, (4,), 1)).item() == 0.0


# ---------------------------------------------------------------- networks side by side


def parallel(n_networks=3, n_inputs=4, hidden_sizes=(8, 5), n_outputs=2, seed=0, **settings):
    """Networks with gates, linear maps and all else different from zero and from each other."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        networks = ParallelMLP(n_networks, n_inputs, hidden_sizes, n_outputs, **settings)
        for parameter in (networks.linear, networks.gates, *([] if networks.square is None else [networks.square])):
            parameter.data.copy_(torch.randn_like(parameter))
    return networks


def one_by_one(networks, x):
    """A_m x' + f_m(x') with an `MLP` for f_m, x' = g_m ⊙ mask_m ⊙ x, and B_m (g_m ⊙ mask_m ⊙ (x² − 1))."""
    n_inputs, n_outputs = networks.linear.shape[1:]
    hidden = [bias.shape[2] for bias in networks.biases[:-1]]
    outputs = []
    for m in range(len(networks.linear)):
        single = MLP(n_inputs, hidden, n_outputs)
        layers = [layer for layer in single if isinstance(layer, torch.nn.Linear)]
        for layer, weight, bias in zip(layers, networks.weights, networks.biases, strict=True):
            layer.weight.data.copy_(weight.data[m].mT)
            layer.bias.data.copy_(bias.data[m, 0])
        if not networks.curved[m]:
            layers[-1].weight.data.zero_()
        seen = x * networks.gates[m] * networks.mask[m]
        outputs.append(single(seen) + seen @ networks.linear[m])
        if networks.square is not None and networks.squared[m]:
            outputs[-1] += (x.square() - 1) * networks.gates[m] * networks.mask[m] @ networks.square[m]
    return torch.stack(outputs)


@pytest.mark.parametrize("hidden_sizes", [(), (8,), (16, 4, 8)])
def test_parallel_networks_are_separate_networks(hidden_sizes):
    mask = (normal(3, 4, seed=3) > -0.5).float()
    straight, squares = torch.tensor([False, True, False]), torch.tensor([False, True, True])
    networks = parallel(hidden_sizes=hidden_sizes, mask=mask, linear_only=straight, squares=squares)
    x = normal(7, 4, seed=4, dtype=torch.float32)
    assert networks(x).shape == (3, 7, 2)
    torch.testing.assert_close(networks(x), one_by_one(networks, x))


def test_parallel_networks_on_a_batch_each():
    """Networks without a curved part stand before and after one that has it."""
    straight = torch.tensor([True, False, True])
    networks = parallel(linear_only=straight, squares=torch.tensor([False, True, True]))
    x = normal(3, 7, 4, seed=10, dtype=torch.float32)
    expected = torch.stack([one_by_one(networks, part)[m] for m, part in enumerate(x)])
    torch.testing.assert_close(networks(x), expected)


def test_parallel_networks_answer_in_the_precision_of_their_inputs():
    networks, x = parallel(squares=torch.tensor([False, True, True])), normal(7, 4, seed=11)
    assert networks(x).dtype == torch.float64
    torch.testing.assert_close(networks(x).float(), networks(x.float()))


def test_gradients_of_parallel_networks_do_not_meet():
    networks, x = parallel(input_gate=True), normal(7, 4, seed=5, dtype=torch.float32)
    networks(x)[1].square().sum().backward()
    for parameter in networks.parameters():
        assert parameter.grad[[0, 2]].eq(0).all()
        assert parameter.grad[1].ne(0).any()


def test_a_masked_input_is_not_seen():
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
    networks, x = parallel(mask=mask), normal(7, 4, seed=6, dtype=torch.float32)
    for j in range(4):
        moved = x.clone()
        moved[:, j] += 1
        for m in range(3):
            assert torch.equal(networks(moved)[m], networks(x)[m]) == (mask[m, j] == 0)


def test_linear_only_networks_are_affine_in_the_inputs():
    networks = parallel(linear_only=torch.tensor([True, False, True])).double()
    x, step = normal(7, 4, seed=7), normal(7, 4, seed=8)
    bend = networks(x + step) - 2 * networks(x) + networks(x - step)
    torch.testing.assert_close(bend[[0, 2]], torch.zeros(2, 7, 2, dtype=torch.float64), atol=1e-12, rtol=0)
    assert bend[1].abs().min() > 1e-6
    torch.testing.assert_close(networks(0 * x)[0], networks.biases[-1][0].expand(7, -1))


def test_penalties_add_the_gates_that_each_network_sees():
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    networks = ParallelMLP(2, 4, (8,), 1, input_gate=True, mask=mask)
    assert networks.penalties().tolist() == [2.0, 4.0]
    with torch.no_grad():
        networks.gates[0, 0] = torch.tensor([-3.0, 0.5, 9.0, 9.0])
    penalties = networks.penalties()
    assert penalties.tolist() == [3.5, 4.0]
    penalties.sum().backward()
    assert networks.gates.grad[:, 0].tolist() == [[-1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]


def test_gates_are_learned_only_if_asked_for():
    assert ParallelMLP(2, 4, (8,), 1, input_gate=True).gates.requires_grad
    assert not ParallelMLP(2, 4, (8,), 1).gates.requires_grad


def test_parallel_networks_start_apart_and_as_wide_as_linear_layers():
    """Uniform on ±1/√fan-in has standard deviation 1/√(3·fan-in); 50 × 16 × 32 entries know it to 1 %."""
    networks = ParallelMLP(50, 16, (32,), 4)
    assert networks.weights[0].std().item() == pytest.approx((3 * 16) ** -0.5, rel=0.05)
    assert networks.weights[0].abs().max() <= 16**-0.5
    assert networks.weights[1].std().item() == pytest.approx((3 * 32) ** -0.5, rel=0.05)
    assert not torch.allclose(networks.weights[0][0], networks.weights[0][1])
