"""Fitted tree ensembles as plain arrays: compact, without code of another library, quick for one row as for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

from ncprob.state import State, to_array
from ncprob.threads import over_threads

LANES = 2**16  # (tree, row) pairs on their way at once: few enough for the cache, enough to outweigh a call
ROWS = 2**14


@dataclass(frozen=True)
class Tree:
    """One tree: inner nodes with `children`, node numbers ≥ 0 or −1 − leaf, and the `values` of its leaves."""

    feature: NDArray[Any]
    threshold: NDArray[np.float64]
    children: NDArray[Any]
    values: NDArray[np.float64]

    @classmethod
    def from_nodes(
        cls, is_leaf: NDArray[Any], left: NDArray[Any], right: NDArray[Any], feature: Any, threshold: Any, values: Any
    ) -> Tree:
        """Number inner nodes and leaves by themselves, in the order of the nodes; the first node is the root."""
        leaf = is_leaf.astype(bool)
        inner = ~leaf
        number = np.where(leaf, -np.cumsum(leaf), np.cumsum(inner) - 1)
        children = np.stack([number[left[inner]], number[right[inner]]], axis=1)
        return cls(feature[inner], threshold[inner], children, values[leaf])


@dataclass(frozen=True)
class TreeEnsemble:
    """baseline + (1/divisor) Σ_t (value of the leaf of tree t that x falls into), for float32 x.

    Inner nodes of all trees are numbered one after the other, and so are leaves. Node k sends x to `children[k, 0]` if
    x[feature[k]] ≤ threshold[k], else to `children[k, 1]`: if this is not negative a later node, else leaf −1 − child.
    `roots` tells where each tree begins, in the same way.

    Examples
    --------
    >>> x = np.linspace(0, 1, 100, dtype=np.float32)[:, None]
    >>> forest = ExtraTreesRegressor(10, random_state=0).fit(x, x[:, 0] > 0.5)
    >>> bool(np.allclose(TreeEnsemble.from_forests([forest])(x)[:, 0], forest.predict(x), atol=1e-6))
    True
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    children: NDArray[np.int32]
    values: NDArray[np.float32]
    baseline: NDArray[np.float64]
    divisor: int

    @property
    def n_outputs(self) -> int:
        """Columns of a prediction."""
        return self.values.shape[1]

    # ---------------------------------------------------------------- from scikit-learn

    @classmethod
    def from_forests(cls, forests: Sequence[ExtraTreesRegressor]) -> TreeEnsemble:
        """The average of forests of equally many trees."""
        grown = [estimator.tree_ for forest in forests for estimator in forest.estimators_]
        trees = [
            Tree.from_nodes(
                t.children_left < 0, t.children_left, t.children_right, t.feature, t.threshold, t.value[:, :, 0]
            )
            for t in grown
        ]
        return cls.from_trees(trees, np.zeros(grown[0].n_outputs), divisor=len(trees))

    @classmethod
    def from_boosting(cls, models: Sequence[HistGradientBoostingRegressor]) -> TreeEnsemble:
        """The average of boosted regressions by least squares."""
        nodes = [tree.nodes for model in models for (tree,) in model._predictors]
        trees = [
            Tree.from_nodes(
                n["is_leaf"], n["left"], n["right"], n["feature_idx"], n["num_threshold"], n["value"][:, None]
            )
            for n in nodes
        ]
        baselines = [float(np.ravel(model._baseline_prediction)[0]) for model in models]
        return cls.from_trees(trees, np.mean(baselines, keepdims=True), divisor=len(models))

    @classmethod
    def from_trees(cls, trees: Sequence[Tree], baseline: NDArray[np.float64], divisor: int) -> TreeEnsemble:
        """Trees one after the other."""
        first_node = np.cumsum([0, *(len(tree.feature) for tree in trees)])[:-1]
        first_leaf = np.cumsum([0, *(len(tree.values) for tree in trees)])[:-1]
        children = [
            np.where(tree.children >= 0, tree.children + node, tree.children - leaf)
            for tree, node, leaf in zip(trees, first_node, first_leaf, strict=True)
        ]
        is_stump = np.array([len(tree.feature) == 0 for tree in trees], dtype=bool)
        return cls(
            roots=np.where(is_stump, -1 - first_leaf, first_node).astype(np.int32),
            feature=np.concatenate([tree.feature for tree in trees]).astype(np.int32),
            threshold=_rounded_down(np.concatenate([tree.threshold for tree in trees])),
            children=np.concatenate(children).astype(np.int32),
            values=np.concatenate([tree.values for tree in trees]).astype(np.float32),
            baseline=baseline,
            divisor=divisor,
        )

    # ---------------------------------------------------------------- saving

    def state(self) -> State:
        """What `from_state` needs."""
        arrays = ("roots", "feature", "threshold", "children", "values", "baseline")
        return State({name: to_array(getattr(self, name)) for name in arrays}, {"divisor": self.divisor})

    @classmethod
    def from_state(cls, state: State, n_inputs: int) -> TreeEnsemble:
        """Trees over `n_inputs` columns; every way down must end in a leaf."""
        feature = state.array("feature", torch.int32, (None,))
        n_nodes = len(feature)
        values = state.array("values", torch.float32, (None, None))
        children = state.array("children", torch.int32, (n_nodes, 2))
        roots = state.array("roots", torch.int32, (None,))
        if n_nodes and not (feature.min() >= 0 and feature.max() < n_inputs):
            raise ValueError(f"trees must split inputs 0 to {n_inputs - 1}")
        for entries in (children, roots):
            if entries.size and not (entries.min() >= -len(values) and entries.max() < n_nodes):
                raise ValueError("trees must lead to nodes and leaves that exist")
        if not np.all((children < 0) | (children > np.arange(n_nodes)[:, None])):
            raise ValueError("trees must lead from a node to a later one")
        return cls(
            roots,
            feature,
            state.array("threshold", torch.float32, (n_nodes,), finite=False),
            children,
            values,
            state.array("baseline", torch.float64, (values.shape[1],)),
            state.integer("divisor", minimum=1),
        )

    # ---------------------------------------------------------------- prediction

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Predictions of the rows of x, (rows, outputs)."""
        parts = [self._sums(np.asarray(x[start : start + ROWS], np.float32)) for start in range(0, len(x), ROWS)]
        return self.baseline + np.concatenate([np.zeros((0, self.n_outputs)), *parts]) / self.divisor

    def _sums(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        """Σ_t of the values that the rows reach, (rows, outputs)."""
        columns, n = np.ascontiguousarray(x.T).ravel(), len(x)
        step = max(1, LANES // n)

        def total(first: int) -> NDArray[np.float64]:
            leaves = self._leaves(columns, n, self.roots[first : first + step])
            return self.values.take(leaves, axis=0, mode="clip").sum(axis=0, dtype=np.float64)

        sums = np.zeros((n, self.n_outputs))
        for part in over_threads(total, range(0, len(self.roots), step)):
            sums += part
        return sums

    def _leaves(self, columns: NDArray[np.float32], n: int, roots: NDArray[np.int32]) -> NDArray[np.int64]:
        """Leaf of each of n rows in some trees, (trees, rows); `columns` has their inputs one after the other.

        All lanes (one tree, one row) go down a level at a time. `clip` is NumPy's fastest mode, and lets lanes that
        have arrived, whose numbers are negative, wait until the others are few enough to go on alone.
        """
        size = np.int64(n)  # 64 bits: features times rows may be many
        at = np.repeat(roots.astype(np.int64), n)
        row = np.tile(np.arange(n), len(roots))
        children = self.children.ravel()
        reached, lane = at.copy(), np.flatnonzero(at >= 0)
        at, row = at[lane], row[lane]
        while len(lane):
            inputs = columns.take(self.feature.take(at, mode="clip") * size + row, mode="clip")
            right = inputs > self.threshold.take(at, mode="clip")
            at = np.where(at < 0, at, children.take(2 * at + right, mode="clip"))
            arrived = at < 0
            if 5 * np.count_nonzero(arrived) > len(at):
                reached[lane] = at
                going = np.flatnonzero(~arrived)
                at, row, lane = at[going], row[going], lane[going]
        return (-1 - reached).reshape(len(roots), n)


def _rounded_down(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 not above each threshold: float32 inputs are then sent where float64 would send them."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)
