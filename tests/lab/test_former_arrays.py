"""A finished run whose arrays are not those of the quantities: what is said, and what ends it."""

import dataclasses
import re

import numpy as np
import pytest
from test_experiment import Toy, content

from icl_lab.lab import records
from icl_lab.lab.quantities import AxesError, quantity
from icl_lab.lab.record import RecordError


@dataclasses.dataclass
class Misnamed(Toy):
    """A binary whose ``measured`` also yields arrays that no quantity names, until it is corrected."""

    corrected: bool = False
    more: tuple = ()

    def measured(self, config, fits):
        yield from super().measured(config, fits)
        if not self.corrected:
            yield {"los_0": np.zeros(config.members), "los_1": np.zeros(config.members)}

    def experiment(self):
        found = super().experiment()
        return dataclasses.replace(found, quantities=found.quantities + self.more)


def test_corrected_quantities_finish_the_run(tmp_path):
    toy = Misnamed()
    with pytest.raises(AxesError, match="array los_0: no quantity"):
        toy(tmp_path)
    toy.more = (quantity("los_{i}", "member", i=(0, 1)),)
    assert not toy(tmp_path).ran
    assert toy.runs == 1


def test_a_corrected_measurement_is_told_in_one_line_what_helps(tmp_path, capsys):
    toy = Misnamed()
    with pytest.raises(AxesError):
        toy(tmp_path)
    toy.corrected = True
    before = content(tmp_path)
    with pytest.raises(RecordError, match=r"arrays of former code: los_0, los_1 \(.*--overwrite"):
        toy(tmp_path)
    assert toy.main("--preset=smoke", f"--outdir={tmp_path}") == 2
    assert re.match("error: .*los_0, los_1.*--overwrite", capsys.readouterr().err.splitlines()[-1])
    assert content(tmp_path) == before
    assert toy(tmp_path, overwrite=True).ran
    assert set(records.load(tmp_path).arrays) == {"params_0", "loss_0"}
