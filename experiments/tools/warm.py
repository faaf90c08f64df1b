"""Imported last by the process that runs are forked from: what every run would do first is done once.

A first figure imports most of matplotlib and loads fonts and the grammar of formulas. What is there by then is left out
of garbage collection, which would look at it in every child and so copy it; of what is new it waits for more than
usual. Programs carry no stack of Python for every operation. No number depends on any of this.
"""

import gc
import importlib
import io

import jax

from icl_lab.lab.command_line import use_compilation_cache
from icl_lab.lab.style import panels, styled

use_compilation_cache()  # before diffrax is imported, as in a run
for _name in ("diffrax", "scipy.integrate", "scipy.interpolate", "scipy.optimize", "scipy.special"):
    importlib.import_module(_name)  # elsewhere what needs them imports them
jax.config.update("jax_traceback_in_locations_limit", 0)
with styled():
    _figure, _axes = panels(1)
    _axes[0, 0].plot([1, 10], [1, 10], label="a")
    _axes[0, 0].set(title=r"$\mathbf{a}$ b", xlabel=r"$10^{-1}$", xscale="log", yscale="log")
    _axes[0, 0].legend()
    _figure.savefig(io.BytesIO(), format="png")
del _figure, _axes
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 20, 20)
