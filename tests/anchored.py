"""A regression whose code can be changed in one place at a time, and a fit that compiles nothing: of test_anchors."""

import dataclasses

import jax
import numpy as np
from toys import made_up

from icl_lab.lab import flags
from icl_lab.lab.claims import Claim
from icl_lab.lab.quantities import quantity
from icl_lab.lab.style import panels
from icl_lab.training import Training
from icl_lab.training.fitting import Fit


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed", at_least=0)
    members: int = flags.setting(2, "members", at_least=1)
    steps: int = flags.setting(20, "training steps", at_least=1)
    rate: float = flags.setting(0.1, "learning rate", above=0)


STEPS, RATES, CURVE = (
    quantity("steps", "measurement"),
    quantity("rates", "rate"),
    quantity("{metric}", "member", "measurement"),
)


@dataclasses.dataclass
class Toy:
    """A regression whose code can be changed in one place at a time."""

    noise: float = 0.1
    power: int = 2
    faster: float = 1.0
    halved_at: int = 100
    title: str = "loss"
    statistic: str = "loss"
    smoke: Config = Config()
    lab: Config = Config(members=3, steps=40)

    def trainings(self, config):
        def draw(rng):
            drawn = rng.uniform(-1, 1, (16, 4)).astype(np.float32)
            return drawn[:, :3], drawn[:, :3].sum(1) + np.float32(self.noise) * drawn[:, 3]

        def step(w, rng, number):
            x, y = draw(rng)
            error = x @ w - y
            slope = self.power * x.T @ (np.abs(error) ** (self.power - 1) * np.sign(error)) / 16
            rate = config.rate / 2 if number >= self.halved_at else config.rate
            return w - np.float32(self.faster * rate) * slope, (np.abs(error) ** self.power).mean()

        def measure(w, rng):
            x, y = draw(rng)
            return {"loss": (np.abs(x @ w - y) ** self.power).mean(), "right": (np.sign(x @ w) == np.sign(y)).mean()}

        keys = jax.random.split(jax.random.key(config.seed), config.members)
        init = lambda key, _: jax.random.normal(key, (3,))  # noqa: E731
        return {"toy": Training(init, step, None, keys, steps=config.steps, measure=measure)}

    def measured(self, config, fits):
        yield STEPS, fits["toy"].steps
        yield RATES, np.array([0.1, 0.2])
        yield CURVE, fits["toy"].metrics

    def figures(self, record):
        figure, axes = panels(1, width=1, height=1)
        axes[0, 0].plot(record.arrays[self.title].T)
        return {"loss": figure}

    def experiment(self):
        claim = Claim(
            "toy.anchored.small", "Toy", "The loss is small.", lambda record: record.arrays[self.statistic][:, -1],
            expected=9.0, tolerance=0.0, relation="<=", reason="a test", expected_verdict={"lab": "holds"},
        )  # fmt: skip
        presets = {"smoke": self.smoke, "quick": Config(), "lab": self.lab, "paper": Config(steps=60)}
        return made_up(
            "toy.anchored", presets, self.measured, (STEPS, RATES, CURVE), trainings=self.trainings,
            figures=self.figures, claims=(claim,),
        )  # fmt: skip


def plainly_fitted(training, **_):
    """Stands for ``Training.carried_out`` without compiling anything: a loop over members and steps."""
    init, step, measure, steps, keys = (vars(training)[name] for name in ("init", "loss", "measure", "steps", "keys"))
    measured = []
    for number, key in enumerate(keys):
        w, rng, rows, losses = np.asarray(init(key, None)), np.random.default_rng(number), [], [np.nan]
        for t in range(steps + 1):
            if t % (steps // 2) == 0:
                rows.append(measure(w, np.random.default_rng(99)) | {"train_loss": np.mean(losses)})
                losses = []
            w, loss = step(w, rng, t)
            losses.append(loss)
        measured.append(rows)
    metrics = {name: np.array([[row[name] for row in rows] for rows in measured]) for name in measured[0][0]}
    return Fit(None, steps // 2 * np.arange(3), metrics, np.full(len(keys), -1))
