"""Run by test_devices.py in a process with eight simulated devices: ensembles on them and on one, as npz."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.training.ensembles import member_mesh, without_idle
from icl_lab.training.fitting import fit


def train(members, mesh, **options):
    rates = jnp.linspace(0.02, 0.2, members)
    return fit(
        lambda key, rate: {"w": jax.random.normal(key, (3,))},
        lambda params, key, rate: jnp.sum((params["w"] - jax.random.normal(key, (3,))) ** 2 / (1 + params["w"] ** 2)),
        optax.sgd,
        jax.random.split(jax.random.key(0), members),
        rates,
        mesh=mesh,
        **{
            "steps": 8,
            "measure_every": 4,
            "measure": lambda params, key, rate: {"norm": jnp.sum(params["w"] ** 2), "rate": rate},
        }
        | options,
    )


def main(folder):
    mesh, found = member_mesh(), {}
    assert mesh.size == 8

    def keep(name, fitted):
        found[f"{name}_w"], found[f"{name}_norm"] = np.asarray(fitted.params["w"]), fitted.metrics["norm"]
        found[f"{name}_loss"], found[f"{name}_rate"] = fitted.metrics["train_loss"][:, 1:], fitted.metrics["rate"]

    for members in (3, 8, 19):
        keep(f"one_{members}", train(members, None, members_at_once=1))
        keep(f"eight_{members}", train(members, mesh, members_at_once=1))
        keep(f"together_{members}", train(members, mesh))
    for first, then, name in ((mesh, None, "from_eight"), (None, mesh, "from_one")):
        place = Path(folder) / name
        train(19, first, members_at_once=1, steps=4, resume=Checkpoint(place, "run", 0))
        keep(name, train(19, then, members_at_once=1, resume=Checkpoint(place, "run", 0)))
    used = {members: without_idle(mesh, members) for members in (1, 3, 8, 10, 19)}
    found["used"] = np.array([[members, one.size if one else 1] for members, one in used.items()])
    np.savez(f"{folder}/found.npz", **found)


if __name__ == "__main__":
    main(sys.argv[1])
