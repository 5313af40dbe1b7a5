"""Coordinates of Y in which the operator is learned.

Raw: Y itself (the paper). Residual: Y' = Φ⁻¹(G(Y | X)), the normal score of Y under a conditional mixture of Gaussians
G that is learned first; location and scale of Y given X are its simplest case. What G explains, the operator
need not: narrow laws take a high rank in raw coordinates and almost none in residual ones. Answers map back by
q_Y = G⁻¹(Φ(q_{Y'}) | x) and F_Y(t | x) = F_{Y'}(Φ⁻¹(G(t | x)) | x).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncprob import mixture
from ncprob.clusters import fit_clusters
from ncprob.encoders import ParallelMLP, encoder_from_state, encoder_state, evaluating
from ncprob.optimization import History, Population, Runtime, Schedule, minimize
from ncprob.pairs import Pairs, TensorPairs, select, tensors_of
from ncprob.preprocessing import SoftScale
from ncprob.sparse import worth_selecting
from ncprob.state import State, fill_module, numbered
from ncprob.threads import over_threads
from ncprob.transport import Transport

FOLDS = 4
COMPONENTS = 5
MANY_ROWS = 5_000  # from here on strong decay does not pay, and is not tried
MANY_INPUTS = 64  # beyond, squares of the inputs are not tried
FEW_INPUTS = 4  # up to here clusters of (X, Y) and normal laws are tried: with more the law of X is too much to learn
MINIMUM_SHARE = 0.1  # variants with a smaller share of the pool are left out of the answers
ROUNDS = 30  # of EM for the shares: more take share from variants that are nearly as good, by the noise of the rows
SCORE_ROWS = 16384  # at a time; a multiple of FOLDS
TABLE_ROWS = 256  # of which the quantiles are tabulated at a time on a CPU: 1 MiB
JUDGES = 2**17  # rows that stop training and pool the variants: more would take longer than training itself
# Normal scores at which the quantiles of a mixture are tabulated. The mass between two is spread evenly over what lies
# between their quantiles, be it a gap between two modes: they are dense where the mass is.
KNOTS = (*(0.01 * k for k in range(200)), *(2 + k / 16 for k in range(41)))
OUTER_KNOTS = (6.0, 8.0, 12.0)  # where the table goes on, along its slope over the last eight knots
FARTHEST = 1e15  # a score that is further out says no more, and would not stay finite
MAX_EXTENSION = 20.0  # soft-scaled units: a factor of 5e8 in a logarithmic tail


Form = Literal["network", "linear", "quadratic", "clusters"]


@dataclass(frozen=True)
class Variant:
    """One way to learn the mixture; every variant is trained on all folds, and they are pooled by what each explains.

    `weight_decay`, an L1 penalty `gate` on the input gates, the inputs that are seen (x[first:inputs], None: to the
    last), the form in which parameters of the mixture depend on them, and the number of Gaussians.
    """

    weight_decay: float
    gate: float
    inputs: int | None = None
    form: Form = "network"
    components: int = COMPONENTS
    first: int = 0

    @classmethod
    def from_facts(cls, facts: Any) -> Variant:
        """Inverse of `dataclasses.asdict`, checked."""
        state = State(facts=facts if isinstance(facts, dict) else {})
        if set(state.facts) != {field.name for field in fields(cls)}:
            raise ValueError(f"{facts!r} does not describe a mixture")
        return cls(
            weight_decay=float(state.fact("weight_decay", int, float)),
            gate=float(state.fact("gate", int, float)),
            inputs=state.fact("inputs", int, type(None)),
            form=state.choice("form", get_args(Form)),
            components=state.integer("components", minimum=1, maximum=COMPONENTS),
            first=state.integer("first", minimum=0),
        )


def variants(weight_decay: float, gate: float, n_rows: int, n_inputs: int, n_plain: int | None = None) -> list[Variant]:
    """Weak, middle and strong decay, clusters or quadratic, linear; with `n_plain`, one of so many inputs.

    With few inputs the quadratic variant is clusters, which begin as a mixture of (X, Y) found by EM: where components
    change sharply with x, the coefficients are larger than gradient descent reaches from zero. Two classical models
    join them there, normal laws (in soft-scaled units) whose mean and, through a softplus, scale are linear in x, or
    in x and the squares of its components: where one of these is right nothing has less to learn. Where rows are few
    for the `n_plain` inputs, two variants see the others alone, which are predictions of y: the noise of many inputs
    cannot mislead them.

    Examples
    --------
    >>> [(variant.form, variant.components) for variant in variants(0.01, 0.0, n_rows=100_000, n_inputs=2)]
    [('network', 5), ('network', 5), ('clusters', 5), ('quadratic', 1), ('linear', 2), ('linear', 1)]
    """
    chosen = [Variant(3 * weight_decay, gate), Variant(30 * weight_decay, gate)]
    if n_rows < MANY_ROWS:
        chosen.append(Variant(100 * weight_decay, gate))
    if n_inputs <= FEW_INPUTS:
        chosen.append(Variant(0.0, 0.0, form="clusters"))
        chosen.append(Variant(3 * weight_decay, gate, form="quadratic", components=1))
    elif n_inputs <= MANY_INPUTS:
        chosen.append(Variant(3 * weight_decay, gate, form="quadratic"))
    chosen.append(Variant(3 * weight_decay, gate, form="linear", components=2))
    if n_inputs <= FEW_INPUTS:
        chosen.append(Variant(3 * weight_decay, gate, form="linear", components=1))
    if n_plain is None:
        return chosen
    if worth_selecting(n_rows, n_plain):
        chosen.append(Variant(30 * weight_decay, gate, first=n_plain))
        chosen.append(Variant(3 * weight_decay, gate, form="linear", components=2, first=n_plain))
    return [*chosen, Variant(10 * weight_decay, gate, n_plain)]


class Head(nn.Sequential):
    """An encoder of any kind, followed by a linear map of its features."""

    def __init__(self, encoder: nn.Module, last: nn.Module) -> None:
        super().__init__(encoder, nn.GELU(), last)

    def state(self) -> State:
        """What `from_state` needs."""
        return State(parts={"encoder": encoder_state(self[0]), "last": State(self[2].state_dict())})

    @classmethod
    def from_state(cls, state: State, encoder: nn.Module | None) -> Head:
        """The same; an encoder that is not ours is filled in place."""
        last = state.part("last")
        weight = last.tensor("weight", torch.float32, (None, None))
        with torch.device("meta"):
            linear = nn.Linear(weight.shape[1], weight.shape[0])
        filled = encoder_from_state(state.part("encoder"), encoder, "x_encoder")
        return cls(filled, fill_module(linear, last.tensors))


class SideBySide(nn.Module):
    """Networks as one module with the outputs of `ParallelMLP`, (networks, batch, outputs)."""

    def __init__(self, networks: Sequence[Head]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def state(self) -> State:
        """What `from_state` needs."""
        return numbered([network.state() for network in self.networks])  # type: ignore[operator]

    @classmethod
    def from_state(cls, state: State, encoder: nn.Module | None) -> SideBySide:
        """The same; every network has a copy of the encoder, if this is not ours."""
        heads = [state.part(str(i)) for i in range(len(state.parts))]
        return cls([Head.from_state(head, copy.deepcopy(encoder)) for head in heads])

    def forward(self, inputs: Any) -> Float[Tensor, "networks batch outputs"]:
        """Outputs of all networks."""
        return torch.stack([network(inputs) for network in self.networks])


class MixtureCoordinates(nn.Module):
    """Mixture density networks (Bishop 1994), cross-fitted: one per variant and fold, trained by maximum likelihood.

    The network of fold k is trained without the rows of fold k. Out-of-fold likelihoods stop training, and pool
    the variants: shares π raise Σ_i log Σ_v π_v g_v(y_i | x_i) by `ROUNDS` of EM, stopped before its maximum (stacking
    of densities, Smyth & Wolpert 1999).
    A training row gets its coordinate from the networks that have not seen it, so scores of training rows are spread as
    those of new rows; a new row gets the average over folds, again a mixture. Y is soft-scaled first (`SoftScale`), so
    that heavy tails do not rule the likelihood.

    Parameters
    ----------
    variants : sequence of Variant
        What to train.
    n_components : int
        Components of Y; each has its own mixture, dependence between them is left to the operator.
    networks : ParallelMLP or SideBySide
        Maps inputs to (variants × folds, rows, 3 · COMPONENTS · n_components), the folds of the first variant first.
    """

    shares: Tensor
    barred: Tensor

    def __init__(self, variants: Sequence[Variant], n_components: int, networks: ParallelMLP | SideBySide) -> None:
        super().__init__()
        self.variants, self.n_components, self.networks = tuple(variants), n_components, networks
        self.scale = SoftScale.of_nothing(n_components)  # until `fit`
        allowed = torch.tensor([v.components for v in self.variants]).repeat_interleave(FOLDS)
        barred = torch.zeros(len(allowed), COMPONENTS, dtype=torch.float32)  # whatever torch's default type is
        barred.masked_fill_(torch.arange(COMPONENTS) >= allowed[:, None], -torch.inf)
        self.register_buffer("barred", barred, persistent=False)
        self.register_buffer("shares", torch.full((len(self.variants),), 1 / len(self.variants), dtype=torch.float64))

    @classmethod
    def for_table(
        cls, variants: Sequence[Variant], n_components: int, n_inputs: int, hidden_sizes: Sequence[int]
    ) -> MixtureCoordinates:
        """Networks for tabular inputs."""
        mask = torch.ones(len(variants), n_inputs)
        for row, variant in zip(mask, variants, strict=True):
            if variant.inputs is not None:
                row[variant.inputs :] = 0
            row[: variant.first] = 0
        squares = torch.tensor([variant.form in ("quadratic", "clusters") for variant in variants])
        networks = ParallelMLP(
            FOLDS * len(variants), n_inputs, hidden_sizes, 3 * COMPONENTS * n_components,
            input_gate=any(variant.gate > 0 for variant in variants), mask=mask.repeat_interleave(FOLDS, dim=0),
            linear_only=torch.tensor([v.form != "network" for v in variants]).repeat_interleave(FOLDS),
            squares=squares.repeat_interleave(FOLDS) if bool(squares.any()) else None,
        )  # fmt: skip
        with torch.no_grad():  # Gaussians start apart, beside each other
            networks.weights[-1].mul_(0.3)
            means = networks.biases[-1].zero_().unflatten(-1, (3, n_components, COMPONENTS))[:, :, 1]
            for variant, part in zip(variants, means.split(FOLDS), strict=True):
                reach = 1.5 if variant.components > 1 else 0.0
                part[..., : variant.components] = torch.linspace(-reach, reach, variant.components)
        return cls(variants, n_components, networks)

    # ---------------------------------------------------------------- saving

    def state(self) -> State:
        """What `from_state` needs."""
        facts = {"variants": [asdict(v) for v in self.variants], "together": isinstance(self.networks, ParallelMLP)}
        return State({"shares": self.shares}, facts, {"networks": self.networks.state(), "scale": self.scale.state()})

    @classmethod
    def from_state(cls, state: State, n_components: int, x_encoder: nn.Module | None = None) -> MixtureCoordinates:
        """The same coordinates of `n_components` components; an encoder that is not ours is copied and filled."""
        ways = [Variant.from_facts(facts) for facts in state.fact("variants", list)]
        shares = state.tensor("shares", torch.float64, (len(ways),))
        if not ways or bool((shares < 0).any()) or not bool(shares.sum() > 0):
            raise ValueError("mixtures must have shares that are not negative")
        scale = SoftScale.from_state(state.part("scale"), n_components)
        part = state.part("networks")
        networks: ParallelMLP | SideBySide = (
            ParallelMLP.from_state(part) if state.fact("together", bool) else SideBySide.from_state(part, x_encoder)
        )
        model = cls(ways, n_components, networks).to(shares.device).eval()
        model.scale, model.shares = scale, shares
        return model

    # ---------------------------------------------------------------- mixtures

    def parameters_at(self, x: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, means, scales: (variants × folds, rows, components of Y, COMPONENTS), in soft-scaled units.

        Our own networks answer in double precision: in single precision the last digits of a row depend on how many
        rows are beside it, and where quantiles are tabulated would depend on these.
        """
        if isinstance(self.networks, ParallelMLP):
            x = x.double()
        logits, means, widths = self._by_component(self.networks(x)).movedim(-1, 2).unbind(dim=1)
        logits = logits + self.barred[:, None, None, :]
        # log_softmax over so short an axis takes twice as long.
        return logits - logits.logsumexp(dim=-1, keepdim=True), means, mixture.scale_of(widths)

    def log_likelihoods(self, x: Any, z: Float[Tensor, "... rows components"]) -> Float[Tensor, "networks rows"]:
        """log g(z | x) of every network, components of Y taken as independent given x."""
        outputs, barred = self._by_component(self.networks(x)), self.barred[:, None, :, None]
        return mixture.log_density(outputs, z.mT, barred).sum(dim=-2)

    def _by_component(self, outputs: Float[Tensor, "networks rows outputs"]) -> Tensor:
        """(networks, 3, components of Y, COMPONENTS, rows): rows last, as the networks lay them out."""
        return outputs.mT.unflatten(1, (3, self.n_components, COMPONENTS))

    def _pooled(self, x: Any, fold: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, means, scales of the pool, each (rows, components of Y, Gaussians); out of fold where given."""
        log_weights, means, scales = (part.float() for part in self.parameters_at(x))
        n_rows = means.shape[1]
        kept = self.shares >= min(MINIMUM_SHARE, float(self.shares.max()))
        share = (self.shares[kept] / self.shares[kept].sum()).to(means.dtype)[:, None]

        def arrange(part: Tensor) -> Tensor:
            """(rows, components of Y, variants kept, folds or one, COMPONENTS)."""
            part = part.unflatten(0, (len(self.variants), FOLDS))[kept]
            if fold is None:
                return part.permute(2, 3, 0, 1, 4)
            rows = torch.arange(n_rows, device=part.device)
            return part[:, fold, rows].permute(1, 2, 0, 3)[:, :, :, None]

        weights = arrange(log_weights).exp()
        weights = weights * share[:, :, None] / weights.shape[3]
        return weights.flatten(2), arrange(means).flatten(2), arrange(scales).flatten(2)

    @torch.no_grad()
    def transport(self, x: Any, fold: Tensor | None = None) -> Transport:
        """G⁻¹(Φ(·) | x) for every row: out of fold where `fold` is given, else of the average over folds."""
        anchors, offsets = zip(*self._by_rows(self._tabulated, x, fold), strict=True)
        return Transport(_knots(self.shares.device), torch.cat(anchors), torch.cat(offsets))

    @torch.no_grad()
    def scores(
        self, x: Any, y: Float[Tensor, "rows components"], fold: Tensor | None = None
    ) -> Float[Tensor, "rows components"]:
        """Φ⁻¹(G(y | x)), which is `transport(x, fold).to_base(y)` but for the error of its table.

        Only in the tails is there a table: there it goes on where G in floating point ends.
        """

        def scores(x: Any, fold: Tensor | None, rows: slice) -> Tensor:
            at, mixtures = y[rows], self._pooled(x, fold)
            weights, means, scales = (part.flatten(0, 1) for part in mixtures)
            found = mixture.normal_scores(weights, means, scales, self.scale(at).float().reshape(-1, 1))
            found = found.reshape(at.shape)
            far = (found.abs() > KNOTS[-1]).any(dim=1)
            if bool(far.any()):
                table = Transport(_knots(found.device), *self._table(*(part[far] for part in mixtures)))
                found[far] = table.to_base(at[far][:, :, None])[:, :, 0].clamp(-FARTHEST, FARTHEST)
            return found

        return torch.cat(self._by_rows(scores, x, fold))

    def _by_rows(self, compute: Callable[[Any, Tensor | None, slice], Any], x: Any, fold: Tensor | None) -> list[Any]:
        """compute(x, fold, rows) for some rows at a time: few on a CPU, whose cache then holds what they need."""
        n_rows = len(tensors_of(x)[0])
        step = TABLE_ROWS if self.shares.device.type == "cpu" else SCORE_ROWS
        parts = [slice(start, start + step) for start in range(0, max(1, n_rows), step)]
        return list(
            over_threads(lambda rows: compute(select(x, rows), None if fold is None else fold[rows], rows), parts)
        )

    def _tabulated(self, x: Any, fold: Tensor | None, rows: slice) -> tuple[Tensor, Tensor]:
        return self._table(*self._pooled(x, fold))

    def _table(self, weights: Tensor, means: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
        """Medians (rows, components of Y) and, relative to them, quantiles at all knots, in units of Y."""
        positive = torch.tensor(KNOTS, dtype=torch.float64, device=weights.device)
        inner = torch.cat([-positive[1:].flip(0), positive])
        outer = torch.tensor(OUTER_KNOTS, dtype=torch.float64, device=weights.device)
        z = _increasing(mixture.quantiles(weights.flatten(0, 1), means.flatten(0, 1), scales.flatten(0, 1), inner))
        steps = (outer - positive[-1]) / (inner[8] - inner[0])
        limit = MAX_EXTENSION / steps[-1]
        below = z[:, :1] - (z[:, 8:9] - z[:, :1]).clamp(max=limit) * steps.flip(0)
        above = z[:, -1:] + (z[:, -1:] - z[:, -9:-8]).clamp(max=limit) * steps
        z = torch.cat([below, z, above], dim=1).unflatten(0, (-1, self.n_components))
        reach = self.scale.reach()[:, None]
        if bool((z.abs() > reach).any()):  # networks that have diverged: absurd values of y, but numbers
            z = _increasing(z.clamp(-reach, reach))
        y = self.scale.from_center(z.mT).mT
        middle = y[..., y.shape[-1] // 2]
        return self.scale.center + middle, y - middle[..., None]

    # ---------------------------------------------------------------- fitting

    def fit(
        self,
        x: Any,
        y: Float[Tensor, "rows components"],
        weights: Tensor | None,
        schedule: Schedule,
        runtime: Runtime,
        stream: Callable[[Callable[[Tensor, Tensor], Any]], Pairs] | None = None,
    ) -> History:
        """Train all networks together and pool the variants; no row is set aside.

        With a `stream`, which makes pairs given what to make of targets and fold numbers, networks train on its rows,
        and the others judge.
        """
        self.scale = SoftScale.fit(y)
        fold = fold_numbers(len(y), y.device)

        def target(y: Tensor, fold: Tensor) -> dict[str, Tensor]:
            return {"z": self.scale(y).float(), "fold": fold}

        data = TensorPairs(x, target(y, fold), weights)
        rows: Pairs = data if stream is None else stream(target)
        own = torch.arange(FOLDS, device=y.device).repeat(len(self.variants))[:, None]
        gates = torch.tensor([v.gate for v in self.variants], device=y.device).repeat_interleave(FOLDS)
        decay = torch.tensor([v.weight_decay for v in self.variants], device=y.device).repeat_interleave(FOLDS)
        together = isinstance(self.networks, ParallelMLP)
        self._start_from_clusters(data, runtime.seed)

        def objective(x: Any, target: dict[str, Tensor]) -> Tensor:
            seen = (own != target["fold"]).float()
            losses = -(self.log_likelihoods(x, target["z"]) * seen).sum(dim=1) / seen.sum(dim=1).clamp(min=1)
            return losses.sum() + ((gates * self.networks.penalties()).sum() if together else 0.0)  # type: ignore[operator]

        @torch.no_grad()
        def score() -> Tensor:
            with evaluating(self.networks):
                likelihood, mass = self._out_of_fold(data)
            folds = fold[: len(mass)].expand(len(likelihood), -1)
            total = likelihood.new_zeros(len(likelihood), FOLDS).scatter_add(1, folds, likelihood * mass)
            scores = -total.flatten() / len(mass) * FOLDS
            return scores if together else scores.mean()

        history = minimize(
            self.networks,
            objective,
            rows,
            score=score,
            schedule=_with_early_validation(schedule, len(rows)),
            runtime=runtime,
            settings={"variants": [repr(v) for v in self.variants]},
            population=Population(decay, exempt=("gates",)) if together else None,
        )
        self._pool(data)
        return history

    @torch.no_grad()
    def _start_from_clusters(self, data: TensorPairs, seed: int) -> None:
        """Let variants of that form begin as clusters of the rows that each network learns from."""
        for number, variant in enumerate(self.variants):
            if variant.form != "clusters":
                continue
            assert isinstance(self.networks, ParallelMLP)
            assert self.networks.square is not None
            z, fold = data.y["z"], data.y["fold"]
            for k in range(FOLDS):
                seen = fold != k
                weights = None if data.weights is None else data.weights[seen]
                network = number * FOLDS + k
                bias, linear, square = (
                    part[network].unflatten(-1, (3, self.n_components, COMPONENTS))
                    for part in (self.networks.biases[-1], self.networks.linear, self.networks.square)
                )
                for component in range(self.n_components):
                    found = fit_clusters(
                        data.x[seen], z[seen, component], weights, COMPONENTS, mixture.MINIMUM_SCALE, seed
                    )
                    constant, by_x, by_square = found.weight_terms()
                    bias[0, :, component] = torch.stack([constant, found.offsets, mixture.width_of(found.scales)]).to(
                        bias
                    )
                    linear[:, 0, component], linear[:, 1, component] = by_x.mT.to(bias), found.slopes.mT.to(bias)
                    square[:, 0, component] = by_square.mT.to(bias)

    def _out_of_fold(self, data: TensorPairs) -> tuple[Float[Tensor, "variants rows"], Float[Tensor, " rows"]]:
        """log g(z | x) of each variant by the network that has not seen the row, and weights, of the judging rows."""
        parts, masses = [], []
        for x, target, mass in itertools.islice(data.chunks(SCORE_ROWS), JUDGES // SCORE_ROWS):
            z, fold = target["z"], target["fold"]
            if isinstance(self.networks, ParallelMLP):
                likelihood = self._own_fold_only(x, z)
            else:
                by_fold = self.log_likelihoods(x, z).unflatten(0, (len(self.variants), FOLDS))
                likelihood = by_fold[:, fold, torch.arange(len(fold), device=fold.device)]
            parts.append(likelihood.double())
            masses.append(torch.ones_like(fold, dtype=torch.float64) if mass is None else mass.double())
        return torch.cat(parts, dim=1), torch.cat(masses)

    def _own_fold_only(self, x: Float[Tensor, "rows inputs"], z: Float[Tensor, "rows components"]) -> Tensor:
        """The same, giving every network the rows of its own fold alone: a quarter of the work. Folds alternate."""
        n = len(x)
        full = -(-n // FOLDS) * FOLDS

        def by_network(rows: Tensor) -> Float[Tensor, "networks rows columns"]:
            rows = torch.cat([rows, rows[-1:].expand(full - n, -1)])
            return rows.unflatten(0, (-1, FOLDS)).transpose(0, 1).repeat(len(self.variants), 1, 1)

        likelihood = self.log_likelihoods(by_network(x), by_network(z))
        return likelihood.unflatten(0, (-1, FOLDS)).transpose(1, 2).flatten(1)[:, :n]

    @torch.no_grad()
    def _pool(self, data: TensorPairs) -> None:
        """Shares of the variants by EM on out-of-fold likelihoods."""
        likelihood, mass = self._out_of_fold(data)
        total = likelihood @ mass
        # Towards the better ones from the start: EM moves slowly between variants that are nearly alike.
        shares = torch.exp(0.1 * (total - total.max())).clamp(min=0.01)
        for _ in range(ROUNDS):
            belongs = torch.softmax(likelihood + shares.log()[:, None], dim=0)
            shares = (belongs @ mass / mass.sum()).clamp(min=1e-12)
        self.shares.copy_(shares / shares.sum())


def _with_early_validation(schedule: Schedule, n: int) -> Schedule:
    """Validate about every second pass over few rows, which are soon overfitted; wait twice as many steps."""
    often = max(10, 2 * n // schedule.batch_size)
    every = min(often, 2 * schedule.validate_every)
    return replace(
        schedule, validate_every=every, patience=max(1, 2 * schedule.patience * schedule.validate_every // every)
    )


def _knots(device: torch.device) -> Float[Tensor, " knots"]:
    """All normal scores of the table."""
    positive = torch.tensor([*KNOTS, *OUTER_KNOTS], dtype=torch.float64, device=device)
    return torch.cat([-positive[1:].flip(0), positive])


def _increasing(values: Tensor) -> Tensor:
    """Strictly increasing along the last axis: quantiles inside a gap or a point may come out equal."""
    ramp = torch.linspace(0, 1e-6, values.shape[-1], dtype=values.dtype, device=values.device)
    return values.cummax(dim=-1).values + ramp


def fold_numbers(n: int, device: torch.device | None = None) -> Tensor:
    """Fold of every row: rows are taken as exchangeable (the caller shuffles), so folds simply alternate."""
    return torch.arange(n, device=device) % FOLDS
