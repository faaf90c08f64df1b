"""The front door: members of a network trained on a sampler in one call."""

import contextlib
import copy
import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh

from icl_lab import notebook
from icl_lab.prompts import BatchLearner, Learner, Sampler, one_prompt
from icl_lab.prompts.naming import called, shortened
from icl_lab.training import progress as progress_of
from icl_lab.training import shown
from icl_lab.training.ensembles import member_mesh
from icl_lab.training.fitting import Fit, Resume
from icl_lab.training.measuring import asked
from icl_lab.training.model import Model
from icl_lab.training.plans import Training, training


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
        parts: Any = copy.deepcopy(tuple(self), memo)
        return type(self)(*parts)

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
        return called(self.model.learner(self.params(member)), f"member {member} of {self.model.name}")

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
        return jax.jit(jax.vmap(lambda params: function(self.model.learner(params))))(self.fit.params)

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
    mesh = mesh_of(devices)
    return carried_out(training(**call), call, progress=progress, mesh=mesh)


def carried_out(
    planned: Training,
    call: Mapping[str, Any],
    *,
    progress: bool = True,
    resume: Resume | None = None,
    mesh: Mesh | None = None,
) -> Trained:
    """Carries out what ``training(**call)`` planned; ``resume`` and ``mesh`` are those of ``fit``."""
    assert planned.model is not None, "a training with a loss of its own is no Trained"
    with progress_of.shown(planned.steps) if progress else contextlib.nullcontext() as watch:
        return Trained(planned.model, planned.carried_out(watch=watch, resume=resume, mesh=mesh), call)


def check_options(options: Mapping[str, Any], train: Callable[..., Any]) -> None:
    """Raises TypeError for what neither ``training`` nor this ``train`` takes, naming options that are alike or all."""
    keywords = [name for name, one in inspect.signature(train).parameters.items() if one.kind is one.KEYWORD_ONLY]
    known = [*inspect.signature(training).parameters, *keywords]
    for name in options:
        if name not in known:
            initials = [one for one in known if name == "".join(part[0] for part in one.split("_"))]
            like = initials or difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {like[0]}?" if like else f"allowed are {', '.join(known[2:])}"
            raise TypeError(f"train() has no option {name!r}; {hint}")


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
