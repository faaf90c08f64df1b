"""How the reduced model is trained: members that start at different scalars, whose course is measured."""

from functools import partial

from jax import Array
from jax.typing import ArrayLike

from experiments.reddy.settings import Training
from experiments.reddy.training import accuracy, cross_entropy, evaluation_samples, progress, reduced, train
from icl_lab.lab.session import Session
from icl_lab.prompts import ItemLabelLaw
from icl_lab.training.fitting import Fit

SCALARS = ("beta_1", "alpha", "beta_2")


def train_reduced(
    session: Session,
    stage: str,
    config: Training,
    keys: Array,
    law: ItemLabelLaw,
    *,
    label_attention: ArrayLike = 1.0,
    starts: ArrayLike = 0.0,
    measures: bool = False,
) -> Fit:
    """Trains M members of the reduced model in one program, of three or two parameters, each from its own start.

    Args:
      session: where it runs.
      stage: name of the checkpoint and of the progress bar.
      config: the setting.
      keys: (M,) member keys.
      law: training laws with a leading member axis.
      label_attention: (M,) factor on beta_2: 1 the model of three parameters; 0 that of two, with beta_2 = 0.
      starts: (M,) initial value of the scalars, or one for all.
      measures: the progress measures on novel classes, and the in-weights accuracy, too.

    Returns:
      A ``Fit`` whose metrics (M, R) are ``ic`` and ``ic_loss``, accuracy and loss on novel classes, and the scalars.
    """
    model = reduced(config)

    def starting(params: dict, setting: dict) -> dict:
        return {"params": dict(params["params"]) | dict.fromkeys(SCALARS, setting["start"])}

    def acting(params: dict, setting: dict) -> dict:
        weights = params["params"]
        return {"params": weights | {"beta_2": setting["label_attention"] * weights["beta_2"]}}

    def observe(params: dict, key: Array, law: ItemLabelLaw) -> dict[str, Array]:
        samples = evaluation_samples(config, law, "ic", key)
        logits = model.logits(params, samples.prompt)
        found = {"ic": accuracy(logits, samples), "ic_loss": cross_entropy(logits, samples).mean()}
        if measures:
            memorised = evaluation_samples(config, law, "iwl", key)
            found["iwl"] = accuracy(model.logits(params, memorised.prompt), memorised)
            found |= progress(partial(model.run, params), samples)
        return found | {name: params["params"][name] for name in SCALARS}

    each = {"start": starts, "label_attention": label_attention}
    return train(session, stage, config, model, keys, law, each=each, starting=starting, acting=acting, observe=observe)
