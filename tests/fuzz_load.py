"""Mutated model files: `load` refuses them with a ValueError, or gives a model that answers; never anything else.

Half of the mutants are damaged bytes; the others have right checksums, as an attacker would make them: facts replaced,
names of tensors exchanged, their types, shapes and numbers changed. `make fuzz` tries 10,000, the tests a few.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as tensor_bytes

from ncprob import NCPClassifier, NCPRegressor, load, storage

SLOWEST, MOST_MEMORY = 5.0, 300.0  # seconds for one file, MiB beyond what ncprob itself takes
ODD_FACTS = [None, -1, 0, 1, 2, 10**6, 10**15, 2**64, 1e300, "", "x", "raw", [], {}, [[]], [1, 2], True, {"facts": {}}]
ODD_NUMBERS = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e30, 1e300, -1e-300]
FRESH = np.array([[0.1, -0.3], [5.0, 1e3]])


def models() -> list:
    """Small fitted models of all kinds of parts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    options = {"max_steps": 5, "hidden_sizes": (4,), "rank": 3, "random_state": 0, "progress": False}
    plain, trees = options | {"tree_inputs": False}, options | {"tree_inputs": True}
    return [
        NCPRegressor(**plain, coordinates="raw").fit(X, X[:, 0]),
        NCPRegressor(**plain, coordinates="residual").fit(X, X),
        NCPRegressor(**plain, coordinates="residual").fit(
            X, np.column_stack([X[:, 0].round(), X[:, 1], np.arange(40)])
        ),
        NCPRegressor(**trees, coordinates="residual").fit(X, X[:, 0]).conformalize(X, X[:, 0]),
        NCPClassifier(**plain).fit(X, X[:, 0] > 0),
        NCPRegressor(**plain, coordinates="residual").fit(X, np.round(X[:, 0])),  # few values
        NCPRegressor(**plain, coordinates="residual").fit(X, np.arange(40.0)),  # integers
    ]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, removed, repeated, or cut off."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 3])):
        at, kind = rng.randrange(max(1, len(content))), rng.randrange(4)
        if kind == 0 and content:
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del content[at : at + rng.choice([1, 8, 100])]
        elif kind == 2:
            content[at:at] = rng.randbytes(rng.choice([1, 8]))
        else:
            del content[at:]
    return bytes(content)


def replace_fact(tree, rng: random.Random) -> None:
    """Replace, remove or add one entry somewhere."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(tree[key], dict | list) and tree[key] and rng.random() < 0.9:
            tree = tree[key]
            continue
        kind = rng.randrange(8)
        if kind == 0:
            del tree[key]
        elif kind == 1 and isinstance(tree, dict):
            tree[str(rng.random())] = tree[key]
        else:
            tree[key] = rng.choice(ODD_FACTS)
        return


def replace_tensor(tensors: dict[str, np.ndarray], rng: random.Random) -> None:
    """Change numbers, shape, type or name of one tensor."""
    name = rng.choice(sorted(tensors))
    value, kind = tensors[name].copy(), rng.randrange(6)
    if kind <= 1 and value.size and value.dtype.kind == "f":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value.flat[rng.randrange(value.size)] = rng.choice(ODD_NUMBERS)
        tensors[name] = value
    elif kind == 2:
        tensors[name] = rng.choice([value.reshape(-1), value[..., None], value[:0] if value.ndim else value])
    elif kind == 3:
        tensors[name] = value.astype(rng.choice([np.float32, np.float64, np.int64, np.uint8]))
    elif kind == 4:
        other = rng.choice(sorted(tensors))
        tensors[name], tensors[other] = tensors[other], tensors[name]
    else:
        del tensors[name]


def mutate(path: Path, rng: random.Random) -> None:
    """Change one of the two files of a model."""
    facts_file = path / storage.FACTS
    tensor_file = next(path.glob(storage.TENSORS.format("*")))
    if rng.random() < 0.5:
        file = rng.choice([facts_file, tensor_file])
        file.write_bytes(damaged(file.read_bytes(), rng))
        return
    facts = json.loads(facts_file.read_text())
    facts.pop("sha256")
    if rng.random() < 0.5:
        replace_fact(facts["state"] if rng.random() < 0.9 else facts, rng)
    else:
        tensors = read_tensors(tensor_file.read_bytes())
        with np.errstate(all="ignore"):
            replace_tensor(tensors, rng)
        content = tensor_bytes({name: np.ascontiguousarray(value) for name, value in tensors.items()})
        digest = hashlib.sha256(content).hexdigest()
        tensor_file.unlink()
        name = storage.TENSORS.format(digest[:16])
        facts["tensors"] = {"file": name, "sha256": digest, "bytes": len(content)}
        (path / name).write_bytes(content)
    facts_file.write_text(json.dumps({**facts, "sha256": storage._checksum(facts)}))


def ask(model) -> str:
    """What a mutant that loads says; a refusal must be a ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            law = model.predict_distribution(FRESH)
            answers = [law.mean(), law.quantile([0.1, 0.9])]
            str(model.diagnostics())
        except ValueError:
            return "refused when asked"
    return "no numbers" if any(np.isnan(answer).any() for answer in answers) else "answers"


def fuzz(rounds: int, seed: int = 0) -> tuple[Counter, float]:
    """Outcomes of so many mutants, and the longest time that one of them took."""
    outcomes, slowest, rng = Counter(), 0.0, random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        whole = []
        for number, model in enumerate(models()):
            model.save(Path(folder) / str(number))
            whole.append({file.name: file.read_bytes() for file in (Path(folder) / str(number)).iterdir()})
        path = Path(folder) / "mutant"
        path.mkdir()
        for _ in range(rounds):
            for file in path.iterdir():
                file.unlink()
            for name, content in rng.choice(whole).items():
                (path / name).write_bytes(content)
            mutate(path, rng)
            start = time.perf_counter()
            try:
                model = load(path)
            except ValueError as error:
                named = str(error).startswith("`")  # the argument that is wrong
                outcomes["refused" if named else f"refused without a name: {error}"] += 1
            else:
                outcomes[ask(model)] += 1
            slowest = max(slowest, time.perf_counter() - start)
    return outcomes, slowest


def memory() -> float:
    """Largest memory of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    fuzz(20)
    before = memory()
    outcomes, slowest = fuzz(rounds, seed=1)
    grown = memory() - before
    print(f"{rounds} mutated models: {dict(outcomes)}; slowest {slowest:.2f} s, {grown:.0f} MiB more memory")
    assert slowest < SLOWEST
    assert grown < MOST_MEMORY
    assert set(outcomes) <= {"refused", "refused when asked", "answers"}
