"""Training steps against the plain baseline, and many members in one program."""

from experiments.tools.benchmarks.programs import Network, by_fit, by_plain_loop, disagreement, networks, other_networks
from experiments.tools.benchmarks.timing import Config, Row, chunks_of_fit, row, take_turns

PLAIN, FIT = "plain loop", "fit"


def steps(config: Config) -> dict[str, list[Row]]:
    """A training step of each network of linear attention: plain, and ours in ``fit``."""
    return {"training step": _against_plain(networks(config), config)}


def others(config: Config) -> dict[str, list[Row]]:
    """The same for networks with softmax, LayerNorm or MLPs."""
    return {f"training step at batch {config.other_batch}": _against_plain(other_networks(config), config)}


def _against_plain(cases: dict[str, Network], config: Config) -> list[Row]:
    with chunks_of_fit({name: by_fit(*pair, config.chunk) for name, pair in cases.items()}) as fits:
        contenders = {}
        for name, pair in cases.items():
            contenders[f"{name}, {PLAIN}"] = (by_plain_loop(*pair, config.loop_steps), config.loop_steps)
            contenders[f"{name}, {FIT}"] = (fits[name], config.chunk)
        timings = take_turns(contenders, config.rounds)
    rows = []
    for name, pair in cases.items():
        base = timings[f"{name}, {PLAIN}"]
        rows.append(row(f"{name}, {PLAIN}", base, base))
        rows.append(row(f"{name}, {FIT}", timings[f"{name}, {FIT}"], base, **disagreement(*pair)))
    return rows


def members(config: Config) -> dict[str, list[Row]]:
    """Member-steps of each network with few and many members in one program, as the binaries group them."""
    tables = {}
    for name, (network, setting) in networks(config).items():
        sizes = {f"{m} member{'s' * (m > 1)}, {FIT}": m for m in config.members}
        with chunks_of_fit({form: by_fit(network, setting, config.chunk, m) for form, m in sizes.items()}) as fits:
            contenders = {f"1 member, {PLAIN}": (by_plain_loop(network, setting, config.loop_steps), config.loop_steps)}
            contenders |= {form: (fits[form], m * config.chunk) for form, m in sizes.items()}
            timings = take_turns(contenders, config.rounds)
        base = timings[f"1 member, {PLAIN}"]
        tables[f"{name}, members in one program"] = [
            row(form, t, base, **{"member-steps/s": 1e3 / t.ms}) for form, t in timings.items()
        ]
    return tables
