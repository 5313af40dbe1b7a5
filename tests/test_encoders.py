"""Encoders give features of the right shape; gates scale and switch off inputs."""

import pytest
import torch
from helpers import normal

from ncprob.encoders import MLP, InputGate, gate_penalty


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
