"""The front door: members of a network trained on a sampler in one call."""

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from flax.errors import FlaxError
from jax import Array
from jax.sharding import Mesh

from icl_lab import notebook
from icl_lab.compare.objectives import Objective
from icl_lab.prompts import BatchLearner, Learner, Prompt, Sampler, ShapeError, one_prompt
from icl_lab.prompts.naming import alike, called, shortened
from icl_lab.prompts.tracing import is_traced
from icl_lab.training import progress as progress_of
from icl_lab.training import shown
from icl_lab.training.alone import PROMPTS, check_alone
from icl_lab.training.ensembles import member_mesh
from icl_lab.training.fitting import Fit, Member, Resume
from icl_lab.training.measuring import asked
from icl_lab.training.model import Model
from icl_lab.training.plans import Training, squared_error, training
from icl_lab.training.prefixes import every_prefix


class Trained(NamedTuple):
    """Trained members, as learners.

    Attributes:
      model: what was trained.
      fit: final parameters with leading member axis, and what was measured: ``fit.steps`` (R,), ``fit.metrics``.
      call: the arguments of ``training``; of loaded members ``{"record": ...}``, which ``save`` writes again.
    """

    model: Model
    fit: Fit
    call: Mapping[str, Any] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Trained({shortened(self.model.name)}, {shown.line(self.fit)})"

    def _repr_html_(self) -> str:
        return notebook.text(repr(self)) + notebook.table(shown.last(self.fit)) + notebook.picture(self.plot())

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "Trained members hold functions, which no pickle keeps: trained.save(folder) and icl_lab.load(folder) keep "
            "them, and trained.fit is arrays alone"
        )

    def __copy__(self) -> "Trained":
        return type(self)(*self)

    def __deepcopy__(self, memo: dict) -> "Trained":
        fields: Any = copy.deepcopy(tuple(self), memo)
        return type(self)(*fields)

    def table(self) -> Iterator[dict[str, Any]]:
        """One row for every measured number: ``quantity``, ``member``, ``step``, ``value``; pandas takes them."""
        return shown.rows(self.fit)

    def plot(self, names: Sequence[str] | None = None) -> Any:
        """A matplotlib ``Figure`` of losses over training steps, references dashed.

        Args:
          names: of metrics; None means ``loss`` and those of the references and variants.

        Raises:
          ValueError: for a name that was not measured, or is no number a member.
        """
        return shown.figure(self.fit, names)

    def params(self, member: int = 0) -> dict:
        """Final parameters of a member, from 0.

        Raises:
          IndexError: if there is no such member.
        """
        members = self.fit.diverged_at.size
        if isinstance(member, bool) or not isinstance(member, int | np.integer) or not 0 <= member < members:
            raise IndexError(f"there is no member {member}; allowed is 0 to {members - 1}")
        return jax.tree.map(lambda leaf: leaf[member], self.fit.params)

    def batch_learner(self, member: int = 0) -> BatchLearner:
        """A member as a learner of B prompts at once; raises as ``params``."""
        return self._learner(self.params(member), f"member {member} of {self.model.name}")

    def learner(self, member: int = 0) -> Learner:
        """A member as a learner, ``Prompt -> prediction``; raises as ``params``."""
        return one_prompt(self.batch_learner(member))

    def learners(self) -> list[Learner]:
        """Every member as a learner."""
        return [self.learner(member) for member in range(self.fit.diverged_at.size)]

    def over_members(self, function: Callable[[BatchLearner], Any]) -> Any:
        """What a function finds of every member, a learner of B prompts, in one program: pytrees of arrays (M, ...).

        Raises:
          ValueError: for what is no function of a learner that can be compiled.
        """
        function = asked("function", "learner of B prompts -> pytree of arrays", function)
        name = f"a member of {self.model.name}"
        return jax.jit(jax.vmap(lambda params: function(self._learner(params, name))))(self.fit.params)

    def objective(self) -> Objective | None:
        """The loss by which the members were trained; None for squared errors.

        Raises:
          ValueError: for loaded members of another objective, which a folder cannot keep.
        """
        known = {f"{one.__module__}.{one.__qualname__}": one for one in (squared_error, every_prefix)}
        objective: Any = self.call.get("objective", squared_error)
        if (record := self.call.get("record")) is not None and (said := record.config.get("objective")) is not None:
            if said not in known:
                raise ValueError(
                    f"objective must be given for members that were loaded: they were trained by {said}, which their "
                    "folder cannot keep"
                )
            objective = known[said]
        return None if objective is squared_error else objective

    def check_alone(self, prompts: Prompt) -> None:
        """Asks a ``Model`` that has not been asked whether it predicts each prompt by itself; raises as ``train``."""
        params = jax.tree.map(lambda leaf: leaf[0], self.fit.params)
        if len(prompts.x) > 1 and not any(map(is_traced, jax.tree.leaves((params, prompts)))):
            few = jax.tree.map(lambda part: part[:PROMPTS], prompts)
            check_alone(self.model, lambda _, given: given[0], lambda _, given: given[1], (params, few))

    def _learner(self, params: dict, name: str) -> BatchLearner:
        """The learner of these parameters; prompts that it does not take are refused by name."""

        def predict(prompts: Prompt) -> Array:
            try:
                return self.model.predict(params, prompts)
            except (TypeError, ValueError, IndexError, FlaxError) as error:
                if isinstance(error, ShapeError | jax.errors.JAXTypeError):
                    raise
                raise ShapeError(
                    f"{name} takes no prompts as {prompts}, where {type(error).__name__} was raised; a network of "
                    "fixed length takes those of its training alone"
                ) from error

        return called(predict, name)

    def common_sampler(self) -> Sampler | None:
        """The task distribution on which all members were measured; None where each has its own, or it is not known."""
        return None if self.call.get("settings") is not None else self.call.get("sampler")


def train(
    network: nn.Module | Model,
    sampler: Sampler | Callable[[Any], Sampler],
    *,
    progress: bool = True,
    devices: int | Sequence[jax.Device] | None = None,
    **options: Any,
) -> Trained:
    """``icl_lab.train``, which describes the arguments, without what it keeps in a folder.

    Warns:
      RuntimeWarning: naming the members whose loss or gradient was not finite.

    Raises:
      TypeError: for an option that ``training`` does not have.
      ValueError: as ``training``, where ``fit`` refuses the optimizer, or for devices that are not there.
    """
    check_options(options, train)
    call = {"network": network, "sampler": sampler, **options}
    mesh, planned = mesh_of(devices), training(**call)
    check_network(planned, network)
    return carried_out(planned, call, progress=progress, mesh=mesh)


def check_network(planned: Training, network: nn.Module | Model) -> None:
    """Asks a ``Model`` whether it predicts each prompt by itself; modules are vectorised over prompts.

    Raises:
      ValueError: as ``check_alone``.
    """
    sampler = planned.sampler
    if isinstance(network, Model) and sampler is not None:
        first = jax.tree.map(lambda leaf: jax.device_get(leaf)[0], planned.settings)
        check_alone(network, planned.init, lambda key, setting: sampler(setting)(key, PROMPTS).prompt, first)


def carried_out(
    planned: Training,
    call: Mapping[str, Any],
    *,
    progress: bool = True,
    resume: Resume | None = None,
    mesh: Mesh | None = None,
    functions: Member | None = None,
) -> Trained:
    """Carries out what ``training(**call)`` planned; ``resume``, ``mesh`` and ``functions`` are those of ``fit``."""
    assert planned.model is not None, "a training with a loss of its own is no Trained"
    with progress_of.shown(planned.steps) if progress else contextlib.nullcontext() as watch:
        fitted = planned.carried_out(watch=watch, resume=resume, mesh=mesh, functions=functions)
        return Trained(planned.model, fitted, call)


def check_options(options: Mapping[str, Any], train: Callable[..., Any]) -> None:
    """Raises TypeError for what neither ``training`` nor this ``train`` takes, naming options that are alike or all."""
    keywords = [name for name, one in inspect.signature(train).parameters.items() if one.kind is one.KEYWORD_ONLY]
    known = [*list(inspect.signature(training).parameters)[2:], *keywords]
    for name in options:
        if name not in known:
            raise TypeError(f"train() has no option {name!r}; {alike(name, known)}")


def mesh_of(devices: int | Sequence[jax.Device] | None) -> Mesh | None:
    """The mesh of ``train``'s ``devices``; None where there is one.

    Raises:
      ValueError: for none, or more than there are.
    """
    pool = jax.devices()
    if isinstance(devices, int) and not isinstance(devices, bool) and 1 <= devices <= len(pool):
        devices = pool[:devices]
    if devices is not None and not (isinstance(devices, Sequence) and devices and all(one in pool for one in devices)):
        raise ValueError(f"devices must be some of {pool}, or how many of them from 1 on, got {devices!r}")
    return member_mesh(devices)
