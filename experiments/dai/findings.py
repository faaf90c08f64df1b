"""What each binary of this folder found, of ``words.toml``."""

from experiments.papers import paper_of

FINDINGS = paper_of("dai").findings
