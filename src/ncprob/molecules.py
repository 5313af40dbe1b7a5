"""Encoders of molecules: conformations in, features out, unchanged by rotation and translation.

A batch of conformations is a tensor of positions (batch, atoms, 3), or the same flattened to (batch, 3·atoms), in any
unit of length; a cutoff is in that unit. `SchNet` [1]_ sends messages between atoms that are close and does not change
when atoms of one type change places; it is plain torch, without a graph library. `DistanceEncoder` is a perceptron on
the distances of atom pairs: fast, for molecules of some tens of atoms. Both serve x and y at once in
`SpectralOperator(encoder, encoder, rank)`.

.. [1] Schütt et al. 2017, SchNet: a continuous-filter convolutional neural network for modeling quantum interactions,
   NeurIPS. https://arxiv.org/abs/1706.08566
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence, Sized

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ncprob._validation import check_integer, check_number
from ncprob.encoders import MLP

__all__ = ["DistanceEncoder", "SchNet", "bonded_pairs", "pair_distances"]

# Messages times width that are formed at once. On a CPU larger temporaries go back to the system each time, and page
# faults cost three times the arithmetic; an accelerator has no such fear but a bounded memory.
CHUNK_ELEMENTS = {"cpu": 2**20, "cuda": 2**27}
SMALLEST_VARIANCE = 1e-8  # of a mean over atoms; the 1e-5 usual in networks is more than what stiff molecules show
SMALLEST_SQUARE = 1e-12  # of a distance: below it the gradient is zero instead of infinite


class SchNet(nn.Module):
    r"""Continuous-filter convolutions over atoms closer than a cutoff (Schütt et al. 2017).

    Atoms start as learned vectors of their types, h_i = embedding(type_i). An interaction adds

        h_i ← h_i + A₂ ssp(A₁ Σ_{j≠i} f(r_ij) ⊙ (B h_j)),      f(r) = c(r) · (F₂ ssp(F₁ g(r))),

    with the shifted softplus ssp(t) = log(½ + ½eᵗ), Gaussians g_k(r) = exp(−(r − μ_k)²/(2Δ²)) at distances μ_k spaced
    by Δ from 0 to the cutoff R, and the smooth cutoff c(r) = ½(cos(πr/R) + 1). Features are a perceptron of the mean
    over atoms. They depend on distances only: rotations, translations and permutations of atoms of one type
    change nothing.

    Parameters
    ----------
    types : sequence
        What tells atoms apart, one entry per atom: elements (`"C"`, 6) share what is learned between atoms; residues or
        `range(n_atoms)` give every one its own embedding.
    n_outputs : int
        Number of features, the rank of the operator.
    width, n_interactions : int
        Length of the vectors of atoms, and how often they are updated; 64 and 3 in Kostic et al. 2024.
    cutoff : float
        Distance from which on atoms do not see each other, in the unit of the positions (0.5 nm in Kostic et al. 2024).
        Slow motions of a chain are hidden from a short cutoff; 1.2 nm shows the folding of a small protein.
    n_radial : int
        Number of Gaussians; 20 in Kostic et al. 2024.
    readout_sizes : sequence of int, optional
        Hidden layers of the perceptron after the mean, by default one of the given width; `()` is a linear map, as in
        Kostic et al. 2024.
    excluded : iterable of pairs, optional
        Pairs of atoms that do not see each other, such as `bonded_pairs(bonds)`, whose distance hardly changes.
    standardize : bool, default=True
        Scale the mean over atoms to mean zero and variance one, by running statistics of the training batches. Without
        it the average over many stiff atoms varies so little that training begins slowly.

    Examples
    --------
    Three atoms, two of them alike:

    >>> encoder = SchNet(["O", "H", "H"], 8, cutoff=2.0).eval()
    >>> water = torch.tensor([[[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]]])
    >>> encoder(water).shape
    torch.Size([1, 8])
    >>> bool(torch.allclose(encoder(water), encoder(water[:, [0, 2, 1]] + 5.0), atol=1e-5))
    True
    """

    kinds: Tensor
    first: Tensor
    second: Tensor

    def __init__(
        self,
        types: Sequence[Hashable],
        n_outputs: int,
        *,
        width: int = 64,
        n_interactions: int = 3,
        cutoff: float = 0.5,
        n_radial: int = 20,
        readout_sizes: Sequence[int] | None = None,
        excluded: Iterable[tuple[int, int]] = (),
        standardize: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(types, Sized):
            raise TypeError(
                f"`types` must hold one entry per atom; got {type(types).__name__}. Pass a list such as "
                "['O', 'H', 'H'], or `range(n_atoms)`."
            )
        self.n_atoms = check_integer(len(types), "len(types)", minimum=2)
        check_integer(n_outputs, "n_outputs", minimum=1)
        check_integer(width, "width", minimum=2)
        check_integer(n_interactions, "n_interactions", minimum=1)
        check_integer(n_radial, "n_radial", minimum=2)
        self.cutoff = check_number(cutoff, "cutoff", minimum=0, open_ends=True)
        self.width = width
        known = {kind: number for number, kind in enumerate(dict.fromkeys(types))}
        self.embedding = nn.Embedding(len(known), width)
        self.radial = GaussianBasis(self.cutoff, n_radial)
        self.interactions = nn.ModuleList(Interaction(width, n_radial) for _ in range(n_interactions))
        self.scale = nn.BatchNorm1d(width, affine=False, eps=SMALLEST_VARIANCE) if standardize else nn.Identity()
        self.readout = MLP(width, (width,) if readout_sizes is None else readout_sizes, n_outputs)
        pairs = _all_pairs(self.n_atoms, excluded)
        self.register_buffer("kinds", torch.tensor([known[kind] for kind in types]), persistent=False)
        self.register_buffer("first", pairs[0], persistent=False)
        self.register_buffer("second", pairs[1], persistent=False)

    def forward(self, positions: Tensor) -> Float[Tensor, "batch outputs"]:
        """Features of a batch of conformations."""
        positions = as_conformations(positions, self.n_atoms, self.radial.centers.dtype)
        return self.readout(self.scale(self._pooled(positions)))

    def _pooled(self, positions: Float[Tensor, "batch atoms 3"]) -> Float[Tensor, "batch width"]:
        """Mean over the atoms, in chunks of rows."""
        most = CHUNK_ELEMENTS.get(positions.device.type, CHUNK_ELEMENTS["cuda"])
        rows = max(1, most // (len(self.first) * self.width))
        return torch.cat([self._mean_atom(part) for part in positions.split(rows)])

    def _mean_atom(self, positions: Float[Tensor, "batch atoms 3"]) -> Float[Tensor, "batch width"]:
        batch = len(positions)
        lengths = _lengths(positions, self.first, self.second)
        row, pair = (~(lengths >= self.cutoff)).nonzero(as_tuple=True)  # NaN counts as near, so that it spreads
        near = lengths[row, pair]
        basis, envelope = self.radial(near)
        ends = self.first[pair] + row * self.n_atoms, self.second[pair] + row * self.n_atoms
        atoms = self.embedding(self.kinds).expand(batch, -1, -1).reshape(batch * self.n_atoms, self.width)
        for interaction in self.interactions:
            atoms = atoms + interaction(atoms, basis, envelope, *ends)
        return atoms.reshape(batch, self.n_atoms, self.width).mean(dim=1)


class GaussianBasis(nn.Module):
    """g_k(r) and c(r) of `SchNet`.

    Examples
    --------
    >>> basis, envelope = GaussianBasis(1.0, 3)(torch.tensor([0.0, 0.5]))
    >>> basis.shape, envelope
    (torch.Size([2, 3]), tensor([1.0000, 0.5000]))
    """

    centers: Tensor

    def __init__(self, cutoff: float, size: int) -> None:
        super().__init__()
        self.cutoff, self.spacing = cutoff, cutoff / (size - 1)
        self.register_buffer("centers", torch.linspace(0, cutoff, size), persistent=False)

    def forward(self, lengths: Float[Tensor, " edges"]) -> tuple[Float[Tensor, "edges size"], Float[Tensor, " edges"]]:
        """Values of the Gaussians and of the smooth cutoff."""
        basis = torch.exp(((lengths[:, None] - self.centers) / self.spacing).square() / -2)
        return basis, (torch.cos(lengths * (math.pi / self.cutoff)) + 1) / 2


class Interaction(nn.Module):
    """One update of the atoms of `SchNet`; every undirected edge carries one filter and two messages.

    Examples
    --------
    >>> edge = torch.tensor([0]), torch.tensor([1])
    >>> Interaction(4, 3)(torch.zeros(2, 4), torch.ones(1, 3), torch.ones(1), *edge).shape
    torch.Size([2, 4])
    """

    def __init__(self, width: int, n_radial: int) -> None:
        super().__init__()
        self.filter_in, self.filter_out = nn.Linear(n_radial, width), nn.Linear(width, width)
        self.sender = nn.Linear(width, width, bias=False)
        self.receiver, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(
        self,
        atoms: Float[Tensor, "atoms width"],
        basis: Float[Tensor, "edges size"],
        envelope: Float[Tensor, " edges"],
        first: Int[Tensor, " edges"],
        second: Int[Tensor, " edges"],
    ) -> Float[Tensor, "atoms width"]:
        """What is added to the atoms."""
        filters = self.filter_out(shifted_softplus(self.filter_in(basis))) * envelope[:, None]
        sent = self.sender(atoms)
        received = torch.zeros_like(atoms).index_add(0, first, filters * sent[second])
        received = received.index_add(0, second, filters * sent[first])
        return self.out(shifted_softplus(self.receiver(received)))


class DistanceEncoder(nn.Module):
    """A perceptron on the distances of atom pairs, each scaled to mean zero and variance one by running statistics.

    It tells all atoms apart, so a permutation of equal atoms changes its features, unlike those of `SchNet`; on the
    same atoms it is some three times faster.

    Parameters
    ----------
    n_atoms, n_outputs : int
        Atoms of a conformation, and features.
    hidden_sizes : sequence of int
        Layers of the perceptron.
    pairs : iterable of pairs, optional
        Atoms whose distances are the inputs; all by default.

    Examples
    --------
    >>> encoder = DistanceEncoder(4, 8).eval()
    >>> encoder(torch.randn(5, 4, 3)).shape
    torch.Size([5, 8])
    """

    first: Tensor
    second: Tensor

    def __init__(
        self,
        n_atoms: int,
        n_outputs: int,
        *,
        hidden_sizes: Sequence[int] = (64, 64),
        pairs: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__()
        self.n_atoms = check_integer(n_atoms, "n_atoms", minimum=2)
        chosen = _all_pairs(n_atoms, ()) if pairs is None else _checked_pairs(pairs, n_atoms, "pairs")
        self.register_buffer("first", chosen[0], persistent=False)
        self.register_buffer("second", chosen[1], persistent=False)
        self.scale = nn.BatchNorm1d(chosen.shape[1], affine=False)
        self.network = MLP(chosen.shape[1], hidden_sizes, n_outputs)

    def forward(self, positions: Tensor) -> Float[Tensor, "batch outputs"]:
        """Features of a batch of conformations."""
        positions = as_conformations(positions, self.n_atoms, next(self.network.parameters()).dtype)
        return self.network(self.scale(_lengths(positions, self.first, self.second)))


def pair_distances(positions: Tensor, pairs: Iterable[tuple[int, int]]) -> Float[Tensor, "batch pairs"]:
    """Distances of atom pairs, with a gradient that stays finite where atoms coincide.

    Positions have shape (batch, atoms, 3), or (batch, 3·atoms) flattened.

    Examples
    --------
    >>> pair_distances(torch.tensor([[[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]]]), [(0, 1)])
    tensor([[5.]])
    """
    shape = np.shape(positions)
    n_atoms = 0 if len(shape) < 2 else shape[1] // 3 if len(shape) == 2 else shape[1]
    positions = as_conformations(positions, n_atoms)
    first, second = _checked_pairs(pairs, positions.shape[1], "pairs").to(positions.device)
    return _lengths(positions, first, second)


def bonded_pairs(bonds: Iterable[tuple[int, int]], separation: int = 3) -> list[tuple[int, int]]:
    """Pairs of atoms that at most `separation` bonds join: their distances hardly change.

    Examples
    --------
    >>> bonded_pairs([(0, 1), (1, 2), (2, 3)], separation=2)
    [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    """
    check_integer(separation, "separation", minimum=1)
    neighbours: dict[int, set[int]] = {}
    for a, b in bonds:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    found: set[tuple[int, int]] = set()
    for atom in neighbours:
        reached = frontier = {atom}
        for _ in range(separation):
            frontier = set().union(*(neighbours[a] for a in frontier)) - reached
            reached = reached | frontier
        found |= {(atom, other) for other in reached if atom < other}
    return sorted(found)


def as_conformations(
    positions: Tensor, n_atoms: int, dtype: torch.dtype | None = None
) -> Float[Tensor, "batch atoms 3"]:
    """Positions as (batch, atoms, 3), given so or flattened; `dtype` is that of the encoder.

    Examples
    --------
    >>> as_conformations(torch.zeros(2, 12), 4).shape
    torch.Size([2, 4, 3])
    """
    if not isinstance(positions, Tensor) or (dtype is not None and positions.dtype != dtype):
        kind = positions.dtype if isinstance(positions, Tensor) else type(positions).__name__
        raise TypeError(
            f"conformations must be a tensor of type {dtype or 'float32'}; got {kind}. "
            f"Pass `torch.as_tensor(positions).to({dtype or 'torch.float32'})`."
        )
    shape = tuple(positions.shape)
    if len(shape) == 2 and shape[1] == 3 * n_atoms:
        return positions.unflatten(1, (n_atoms, 3))
    if len(shape) != 3 or shape[1:] != (n_atoms, 3):
        raise ValueError(
            f"conformations must have shape (batch, {n_atoms}, 3), or (batch, {3 * n_atoms}) flattened; got {shape}. "
            "Select the atoms that the encoder was made for."
        )
    return positions


def _lengths(positions: Tensor, first: Tensor, second: Tensor) -> Float[Tensor, "batch pairs"]:
    squares = (positions[:, first] - positions[:, second]).square().sum(dim=-1)
    return squares.clamp(min=SMALLEST_SQUARE).sqrt()


def _all_pairs(n_atoms: int, excluded: Iterable[tuple[int, int]]) -> Int[Tensor, "2 pairs"]:
    """Every pair i < j that is not excluded."""
    kept = torch.ones(n_atoms, n_atoms, dtype=torch.bool).triu(1)
    left_out = list(excluded)
    if left_out:
        i, j = _checked_pairs(left_out, n_atoms, "excluded")
        kept[i, j] = kept[j, i] = False
    if not bool(kept.any()):
        raise ValueError("`excluded` must leave at least one pair of atoms; it leaves none. Exclude fewer pairs.")
    return kept.nonzero().mT.contiguous()


def _checked_pairs(pairs: Iterable[tuple[int, int]], n_atoms: int, name: str) -> Int[Tensor, "2 pairs"]:
    table = torch.as_tensor([tuple(map(int, pair)) for pair in pairs], dtype=torch.long)
    if table.ndim != 2 or table.shape[1] != 2:
        raise ValueError(f"`{name}` must be pairs of atoms, such as [(0, 3)]; got shape {tuple(table.shape)}.")
    if bool((table < 0).any()) or bool((table >= n_atoms).any()) or bool((table[:, 0] == table[:, 1]).any()):
        raise ValueError(
            f"`{name}` must be pairs of different atoms from 0 to {n_atoms - 1}; got others. Count atoms from 0."
        )
    return table.mT.contiguous()


def shifted_softplus(values: Tensor) -> Tensor:
    """ssp(t) = log(½ + ½eᵗ), a smooth ramp with ssp(0) = 0.

    Examples
    --------
    >>> shifted_softplus(torch.zeros(1))
    tensor([0.])
    """
    return nn.functional.softplus(values) - math.log(2)
