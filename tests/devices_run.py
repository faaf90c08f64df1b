"""Run by test_devices.py in a process with eight simulated devices: ensembles on them and on one, as npz."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import icl_lab
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.training import trained
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
    sampler = linear_regression(context_length=3, input_size=2)
    for name, devices in (("all", None), ("two", 2), ("last", jax.devices()[-1:])):
        fitted = icl_lab.train(
            LinearSelfAttention(), sampler, members=4, steps=2, batch=4, eval_tasks=4, measure_every=1, devices=devices,
            progress=False,
        ).fit  # fmt: skip
        found[f"train_{name}"] = fitted.metrics["loss"]
    found["meshes"] = np.array([trained.mesh_of(devices).size for devices in (None, 2, jax.devices()[-1:])])
    found["last"] = np.array([device.id for device in without_idle(member_mesh(jax.devices()[-1:]), 3).devices.flat])
    np.savez(f"{folder}/found.npz", **found)


if __name__ == "__main__":
    main(sys.argv[1])
