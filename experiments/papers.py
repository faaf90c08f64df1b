"""What the page says of a paper as a whole: question, answer with its number, and what is seen in each picture."""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from icl_lab.lab.experiment import Experiment

ORDER = ("von_oswald", "zhang_frei_bartlett", "reddy", "dai")
"""In which papers are read; others follow, by name."""


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper, as ``words.toml`` in its folder describes it.

    ``answer`` names estimates of the ledger as fields (``"{one_step.cosine}"``, see ``experiments.page.words``).
    ``captions`` say what is seen in each picture, by ``figure/picture``; figures, and the pictures of each, are
    shown in this order. ``findings`` say in one or two sentences what each experiment found. ``why`` says, by
    ``figure.claim`` or a pattern of such names, why a claim about a published value does not agree with the paper;
    claims that are ``against`` the paper contradict it where they hold.
    """

    key: str  # its folder
    source: str
    link: str = ""  # to the paper
    title: str = ""
    question: str = ""
    answer: str = ""
    captions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    findings: Mapping[str, str] = dataclasses.field(default_factory=dict)  # by figure
    why: Mapping[str, str] = dataclasses.field(default_factory=dict)
    against: Sequence[str] = ()

    @property
    def figures(self) -> list[str]:
        """Names of the experiments, in the order in which they are read."""
        return list(dict.fromkeys(name.split("/")[0] for name in self.captions))


def paper_of(key: str) -> Paper:
    """The paper in this folder; one without words of its own where nobody has written any."""
    try:
        words = resources.files(f"experiments.{key}").joinpath("words.toml").read_text("utf-8")
    except (FileNotFoundError, ModuleNotFoundError):
        return Paper(key, key)
    return Paper(key, **tomllib.loads(words))


def finding_of(experiment: Experiment) -> str:
    """What an experiment found, in one or two sentences: its own, or those of its paper's ``words.toml``."""
    paper, _, figure = experiment.name.partition(".")
    return experiment.finding or paper_of(paper).findings.get(figure, "")


def pictures(experiment: str, folder: Path) -> list[Path]:
    """The pictures of a run in the order of their captions, others by name."""
    paper, figure = experiment.split(".", 1)
    place = {name: n for n, name in enumerate(paper_of(paper).captions)}
    paths = folder.glob("[!.]*.png")
    return sorted(paths, key=lambda path: (place.get(f"{figure}/{path.stem}", len(place)), path.stem))
