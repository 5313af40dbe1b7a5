"""Encoders of molecules: invariance to motion and to equal atoms, finite gradients, one encoder for x and y."""

import math

import pytest
import torch
from helpers import generator, normal
from hypothesis import given, settings
from hypothesis import strategies as st

import ncprob
from ncprob import SpectralOperator, molecules
from ncprob.molecules import DistanceEncoder, SchNet, bonded_pairs, pair_distances

ELEMENTS = ["C", "N", "C", "O", "N", "C"]


def conformations(n, seed=0):
    return normal(n, len(ELEMENTS), 3, seed=seed, dtype=torch.float32)


def schnet(types=ELEMENTS, n_outputs=5, seed=0, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SchNet(types, n_outputs, **{"width": 16, "n_interactions": 2, "cutoff": 3.0, "n_radial": 12} | options)


def settled(encoder):
    """Ready to answer in float64, after one batch that sets the running statistics: features then vary by about one."""
    encoder.double().scale.momentum = 1.0
    encoder.train()(conformations(64, seed=99).double())
    return encoder.eval()


def rotation(seed):
    """A random rotation, det +1, from the QR of a Gaussian matrix."""
    q, r = torch.linalg.qr(normal(3, 3, seed=seed))
    q = q * r.diagonal().sign()
    return q * torch.tensor([1.0, 1.0, torch.linalg.det(q).sign()])


def encoders():
    return [schnet(), DistanceEncoder(len(ELEMENTS), 5)]


# ---------------------------------------------------------------- invariance


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), shift=st.floats(-3, 3))
def test_motion_of_the_whole_changes_nothing(seed, shift):
    x = conformations(4, seed=seed).double()
    moved = x @ rotation(seed + 1).mT + shift * torch.tensor([1.0, -2.0, 0.5]).double()
    for encoder in map(settled, encoders()):
        torch.testing.assert_close(encoder(moved), encoder(x), atol=1e-6, rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.permutations([0, 2, 5]), swapped=st.booleans())
def test_equal_atoms_may_change_places(seed, order, swapped):
    permutation = torch.arange(len(ELEMENTS))
    permutation[[0, 2, 5]] = torch.tensor(order)
    if swapped:
        permutation[[1, 4]] = torch.tensor([4, 1])
    x, encoder = conformations(3, seed=seed).double(), settled(schnet())
    torch.testing.assert_close(encoder(x[:, permutation]), encoder(x), atol=1e-6, rtol=1e-6)


def test_different_atoms_may_not_change_places():
    x = conformations(3).double()
    by_element, by_atom = settled(schnet()), settled(schnet(range(len(ELEMENTS))))
    for encoder, order in ((by_element, [1, 0, 2, 3, 4, 5]), (by_atom, [2, 1, 0, 3, 4, 5])):
        assert (encoder(x[:, order]) - encoder(x)).abs().max() > 0.01


# ---------------------------------------------------------------- the formula


def test_features_are_those_of_the_written_formula():
    """The sum over neighbours atom by atom, with the weights of the encoder."""
    encoder, x = schnet(cutoff=1.5, excluded=[(0, 1)]).double().eval(), normal(2, len(ELEMENTS), 3, seed=3)

    def ssp(t):
        return torch.log(0.5 + 0.5 * t.exp())

    n, centers = len(ELEMENTS), torch.linspace(0, 1.5, 12).double()
    known = list(dict.fromkeys(ELEMENTS))
    kind = [known.index(element) for element in ELEMENTS]
    expected = []
    for conformation in x:
        h = encoder.embedding.weight[kind]
        for layer in encoder.interactions:
            rows = []
            for i in range(n):
                received = torch.zeros(16).double()
                for j in range(n):
                    r = (conformation[i] - conformation[j]).norm()
                    if i != j and r < 1.5 and {i, j} != {0, 1}:
                        gaussians = torch.exp(-((r - centers) ** 2) / (2 * (1.5 / 11) ** 2))
                        filters = layer.filter_out(ssp(layer.filter_in(gaussians)))
                        received = received + filters * (0.5 * (math.cos(math.pi * r / 1.5) + 1)) * layer.sender(h[j])
                rows.append(layer.out(ssp(layer.receiver(received))))
            h = h + torch.stack(rows)
        expected.append(h.mean(dim=0))
    expected = encoder.readout(encoder.scale(torch.stack(expected)))
    torch.testing.assert_close(encoder(x), expected, atol=1e-6, rtol=1e-6)


def test_cutoff_is_smooth_and_distant_atoms_are_not_seen():
    encoder = schnet(["C", "C"], cutoff=1.0, standardize=False).eval()

    def at(r):
        return encoder(torch.tensor([[[0.0, 0.0, 0.0], [r, 0.0, 0.0]]]))

    torch.testing.assert_close(at(1.0), at(7.0))
    torch.testing.assert_close(at(0.999), at(1.0), atol=1e-4, rtol=1e-3)
    assert (at(0.5) - at(1.0)).abs().max() > 1e-3


def test_excluded_pairs_are_not_seen():
    encoder = settled(schnet(excluded=[(1, other) for other in (0, 2, 3, 4, 5)], cutoff=9.0))
    x = conformations(1).double()
    y, z = x.clone(), x.clone()
    y[:, 1] += 0.3  # atom 1 sees nobody and is seen by nobody
    z[:, 2] += 0.3
    torch.testing.assert_close(encoder(x), encoder(y))
    assert (encoder(x) - encoder(z)).abs().max() > 0.01


def test_rows_do_not_see_their_neighbours_and_chunks_change_nothing(monkeypatch):
    x, encoder = conformations(9).double(), settled(schnet())
    whole = encoder(x)
    torch.testing.assert_close(encoder(x[3:4]), whole[3:4])
    monkeypatch.setattr(molecules, "CHUNK_ELEMENTS", {"cpu": 1, "cuda": 1})
    torch.testing.assert_close(encoder(x), whole)


def test_flat_conformations_are_the_same():
    x = conformations(4)
    for encoder in encoders():
        torch.testing.assert_close(encoder.eval()(x.flatten(1)), encoder(x))


@pytest.mark.parametrize("encoder", encoders(), ids=["schnet", "distances"])
def test_gradient_is_finite_where_atoms_coincide(encoder):
    x = conformations(8)
    x[:, 1] = x[:, 0]
    x.requires_grad_()
    encoder(x).square().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)


def test_atoms_far_apart_give_features_without_messages():
    encoder = schnet().eval()
    x = 100.0 * torch.arange(len(ELEMENTS) * 3).reshape(1, -1, 3)
    assert torch.isfinite(encoder(x)).all()


def test_against_torch_geometric():
    pyg = pytest.importorskip("torch_geometric.nn.models.schnet", reason="torch_geometric is only compared with")
    torch.manual_seed(0)
    block = pyg.InteractionBlock(hidden_channels=16, num_gaussians=12, num_filters=16, cutoff=3.0)
    ours = molecules.Interaction(16, 12)
    for mine, theirs in (
        (ours.filter_in, block.mlp[0]),
        (ours.filter_out, block.mlp[2]),
        (ours.sender, block.conv.lin1),
        (ours.receiver, block.conv.lin2),
        (ours.out, block.lin),
    ):
        mine.load_state_dict(theirs.state_dict())
    x, h = conformations(1)[0], normal(len(ELEMENTS), 16, seed=1, dtype=torch.float32)
    first, second = torch.triu_indices(len(ELEMENTS), len(ELEMENTS), 1)
    lengths = (x[first] - x[second]).norm(dim=1)
    first, second, lengths = first[lengths < 3], second[lengths < 3], lengths[lengths < 3]
    both = torch.stack([torch.cat([first, second]), torch.cat([second, first])])
    doubled = torch.cat([lengths, lengths])
    expected = block(h, both, doubled, pyg.GaussianSmearing(0.0, 3.0, 12)(doubled))
    torch.testing.assert_close(ours(h, *molecules.GaussianBasis(3.0, 12)(lengths), first, second), expected)


# ---------------------------------------------------------------- in the operator


def hinge_pairs(n, seed=0):
    """A chain of four beads whose ends open and close: the next opening is 0.9 times the last one plus noise."""
    opening = torch.empty(n + 1)
    noise = normal(n + 1, seed=seed, dtype=torch.float32)
    opening[0] = noise[0]
    for t in range(n):
        opening[t + 1] = 0.9 * opening[t] + (1 - 0.81) ** 0.5 * noise[t + 1]
    angle = 1.6 + 0.4 * opening
    beads = torch.zeros(n + 1, 4, 3)
    beads[:, 0, 0] = -1.0
    beads[:, 2, 0], beads[:, 2, 1] = -angle.cos(), angle.sin()
    beads[:, 3] = 2 * beads[:, 2]
    beads[:, :3] += 0.01 * torch.randn(n + 1, 3, 3, generator=generator(seed + 1))
    return beads[:-1], beads[1:]


@pytest.mark.parametrize("kind", ["schnet", "distances"])
def test_one_encoder_for_both_finds_the_leading_singular_value(kind):
    """Gaussian autoregression seen through a molecule: σ₁ = 0.9, standard error about (1 − 0.81)/√2000 ≈ 0.005 by
    itself, and larger by the correlation of neighbours, √((1 + 0.81)/(1 − 0.81)) ≈ 3; three of these are 0.04.
    """
    torch.manual_seed(0)
    encoder = schnet(range(4), 4) if kind == "schnet" else DistanceEncoder(4, 4, hidden_sizes=(16,))
    operator = SpectralOperator(encoder, encoder, rank=4)
    pairs = hinge_pairs(2000)
    ncprob.train(
        operator, pairs, max_steps=80, batch_size=256, learning_rate=1e-2, device="cpu", progress=False, random_state=0
    )
    operator.postprocess(pairs, kind="whitening")
    assert operator.x_encoder is operator.y_encoder
    assert operator.singular_values[0].item() == pytest.approx(0.9, abs=0.04)


def test_weights_are_kept_and_filled_into_a_like_encoder():
    x, y = hinge_pairs(64)
    encoder = schnet(range(4), 4)
    operator = SpectralOperator(encoder, encoder, rank=4)
    operator.train()(x[:2], y[:4].flatten(1))  # moves the running statistics
    operator.eval().postprocess((x, y))
    like = schnet(range(4), 4, seed=7)
    again = SpectralOperator.from_state(operator.state(), like, like)
    assert torch.equal(again.density_ratio(x, y), operator.density_ratio(x, y))


# ---------------------------------------------------------------- helpers and errors


def test_bonded_pairs_of_a_ring_and_a_chain():
    assert bonded_pairs([(0, 1), (1, 2), (2, 3), (3, 0)], separation=1) == [(0, 1), (0, 3), (1, 2), (2, 3)]
    chain = bonded_pairs([(0, 1), (1, 2), (2, 3), (3, 4)])
    assert chain == [(i, j) for i in range(5) for j in range(i + 1, 5) if j - i <= 3]


def test_pair_distances():
    x = conformations(3)
    torch.testing.assert_close(pair_distances(x, [(0, 2), (5, 1)])[:, 1], (x[:, 5] - x[:, 1]).norm(dim=1))


@pytest.mark.parametrize("encoder", encoders(), ids=["schnet", "distances"])
@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 6, 2), (6, 3), (2, 17)])
def test_wrong_shape(encoder, shape):
    with pytest.raises(ValueError, match=r"conformations must have shape \(batch, 6, 3\)"):
        encoder(torch.zeros(shape))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cutoff": 0.0}, "`cutoff`"),
        ({"width": 1}, "`width`"),
        ({"n_radial": 1}, "`n_radial`"),
        ({"n_interactions": 0}, "`n_interactions`"),
        ({"n_outputs": 0}, "`n_outputs`"),
        ({"types": ["C"]}, r"`len\(types\)`"),
        ({"excluded": [(0, 6)]}, "`excluded` must be pairs of different atoms from 0 to 5"),
        ({"excluded": [(0, 1, 2)]}, "`excluded` must be pairs of atoms"),
        ({"excluded": [(i, j) for i in range(6) for j in range(i)]}, "`excluded` must leave"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        schnet(**options)


def test_wrong_pairs():
    with pytest.raises(ValueError, match="`pairs` must be pairs of different atoms"):
        DistanceEncoder(4, 2, pairs=[(1, 1)])


def test_pair_distances_of_flat_conformations():
    x = conformations(3)
    torch.testing.assert_close(pair_distances(x.flatten(1), [(0, 2), (5, 1)]), pair_distances(x, [(0, 2), (5, 1)]))
    with pytest.raises(ValueError, match="conformations must have shape"):
        pair_distances(torch.zeros(2, 16), [(0, 1)])
    with pytest.raises(ValueError, match="conformations must have shape"):
        pair_distances(torch.zeros(18), [(0, 1)])
    with pytest.raises(ValueError, match="from 0 to 4"):  # 15 columns are five atoms
        pair_distances(torch.zeros(2, 15), [(0, 5)])
    with pytest.raises(TypeError, match="must be a tensor"):
        pair_distances(x.numpy(), [(0, 1)])


@pytest.mark.parametrize("encoder", encoders(), ids=["schnet", "distances"])
def test_nan_spreads_and_wrong_types_are_named(encoder):
    encoder = encoder.eval()
    x = conformations(3)
    x[1, 2, 0] = torch.nan
    assert encoder(x).isnan().any(dim=1).tolist() == [False, True, False]
    with pytest.raises(TypeError, match=r"tensor of type torch.float32; got ndarray"):
        encoder(conformations(2).numpy())
    with pytest.raises(TypeError, match=r"tensor of type torch.float32; got torch.float64"):
        encoder(conformations(2).double())


def test_types_are_one_per_atom():
    with pytest.raises(TypeError, match="`types` must hold one entry per atom; got int"):
        SchNet(5, 3)
