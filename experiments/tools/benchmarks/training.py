"""Training steps against the plain baseline and the floor, and ensembles of members in one program."""

import dataclasses

from experiments.tools.benchmarks import floor
from experiments.tools.benchmarks.programs import (
    by_fit,
    by_loop,
    by_plain_loop,
    counted_gflop,
    disagreement,
    networks,
    other_networks,
    program,
)
from experiments.tools.benchmarks.timing import Config, Row, Timing, chunks_of_fit, ratio, row, take_turns
from experiments.von_oswald.common import Setting

PLAIN, LOOP, FIT = "plain loop", "our step in a Python loop", "fit"


def steps(config: Config) -> dict[str, list[Row]]:
    """A training step of each network: plain, ours in a Python loop, ours in ``fit``; and the floor."""
    cases = networks(config)
    trains = {(name, FIT): by_fit(*pair, config.chunk) for name, pair in cases.items()}
    with chunks_of_fit({" ".join(key): train for key, train in trains.items()}) as fits:
        rates = floor.contenders(config, next(iter(cases.values())))
        contenders = dict(rates)
        for name, pair in cases.items():
            few, many = config.loop_steps, 4 * config.loop_steps
            contenders[f"{name} {PLAIN}"] = (by_plain_loop(*pair, few), few)
            contenders[f"{name} {LOOP}"] = (by_loop(*pair, many), many)
            contenders[f"{name} {FIT}"] = (fits[f"{name} {FIT}"], config.chunk)
        timings = take_turns(contenders, config.rounds)
    peak, draws = floor.peak_gflops(timings), floor.random_ms(timings)
    found = []
    for name, (network, setting) in cases.items():
        sizes = (network.layers, network.looped, network.token_clip, setting.context_length, setting.input_size)
        gflop = 1e-9 * setting.batch * floor.operations(*sizes)
        lowest = draws + 1e3 * gflop / peak
        width = setting.input_size + 1
        small = floor.small_gflops(timings, setting.batch, width)
        summed = 1e-9 * setting.batch * floor.sums_over_tasks(network.layers, setting.input_size)
        by_small = draws + 1e3 * ((gflop - summed) / small + summed / peak)
        for form in (PLAIN, LOOP, FIT):
            timing = timings[f"{name} {form}"]
            rate = 1e3 * gflop / timing.ms
            columns: dict[str, float | str] = {
                "GFLOP/s": rate,
                "of peak": rate / peak,
                "floor ms": lowest,
                "over floor": timing.ms / lowest,
            }
            if network.layers > 2 or network.token_clip:  # fewer layers have no product of two matrices of a task
                columns |= {"floor of small products ms": by_small, "over it": timing.ms / by_small}
            if form == FIT:
                columns |= disagreement(network, setting)
            found.append(row(f"{name}, {form}", timing, timings[f"{name} {PLAIN}"], **columns))
    return {"training step": found, "rates that make the floor": floor.rows({name: timings[name] for name in rates})}


def others(config: Config) -> dict[str, list[Row]]:
    """A training step of networks with softmax, LayerNorm or MLPs: plain, and ours in ``fit``.

    Their floor is the time of the operations that XLA counts in our step at the rate of a large matrix product.
    """
    cases = other_networks(config)
    with chunks_of_fit({name: by_fit(*pair, config.chunk) for name, pair in cases.items()}) as fits:
        contenders = floor.large_product()
        for name, pair in cases.items():
            contenders[f"{name}, {PLAIN}"] = (by_plain_loop(*pair, config.loop_steps), config.loop_steps)
            contenders[f"{name}, {FIT}"] = (fits[name], config.chunk)
        timings = take_turns(contenders, config.rounds)
    rows = []
    for name, pair in cases.items():
        base = timings[f"{name}, {PLAIN}"]
        rows.append(row(f"{name}, {PLAIN}", base, base))
        ours = timings[f"{name}, {FIT}"]
        against = floor.of_counted(ours, counted_gflop(program(*pair)), timings)
        rows.append(row(f"{name}, {FIT}", ours, base, **against, **disagreement(*pair)))
    return {f"training step at batch {config.other_batch}": rows}


def ensemble(config: Config) -> dict[str, list[Row]]:
    """Member-steps of ensembles of the first network, by how many members are vectorised together."""
    small = ensemble_rows(config, config.ensemble, config.ensemble_batch, (1, 2, 4, 8, 16, 32))
    large = ensemble_rows(config, config.large_ensemble, config.batch, (1, 2, 5))
    return {
        f"{config.ensemble} members at batch {config.ensemble_batch}": small,
        f"{config.large_ensemble} members at batch {config.batch}": large,
    }


def ensemble_rows(config: Config, members: int, batch: int, groups: tuple[int, ...]) -> list[Row]:
    """One ensemble, in groups of these sizes and of the size that the binaries choose."""
    network, setting = next(iter(networks(config).values()))
    setting = dataclasses.replace(setting, batch=batch)
    rule = min(program(network, setting).members_at_once or members, members)
    tried = sorted({min(g, members) for g in (*groups, rule)})
    alone, chunk = f"1 member, {FIT}", -(-config.chunk // 4)
    names = {g: f"{members} members, {FIT}, {g} at once" + (" (the rule)" * (g == rule)) for g in tried}
    trains = {name: by_fit(network, setting, chunk, members, members_at_once=g) for g, name in names.items()}
    loop = 4 * config.loop_steps
    with chunks_of_fit(trains | {alone: by_fit(network, setting, config.chunk)}) as fits:
        timings = take_turns(
            {
                f"1 member, {PLAIN}": (by_plain_loop(network, setting, config.loop_steps), config.loop_steps),
                f"1 member, {LOOP}": (by_loop(network, setting, loop), loop),
                alone: (fits[alone], config.chunk),
                **{name: (fits[name], members * chunk) for name in names.values()},
            },
            config.rounds,
        )
    return [
        _member_row(name, t, timings, alone, members if name in trains else 1, setting) for name, t in timings.items()
    ]


def _member_row(name: str, t: Timing, timings: dict[str, Timing], alone: str, members: int, setting: Setting) -> Row:
    """A row per member-step, against one member in ``fit``; with compilation, each over the published steps."""

    def with_compilation(timing: Timing, runs: int) -> float:  # milliseconds of a member-step
        return timing.ms + timing.compile_ms / (runs * setting.steps)

    return row(
        name,
        t,
        timings[alone],
        **{
            "with compilation": with_compilation(timings[alone], 1) / with_compilation(t, members),
            "over our loop": ratio(timings[f"1 member, {LOOP}"], t),
            "over plain": ratio(timings[f"1 member, {PLAIN}"], t),
            "member-steps/s": 1e3 / t.ms,
        },
    )


def members(config: Config) -> dict[str, list[Row]]:
    """Member-steps of each network with few and many members in one program, as the binaries group them."""
    tables = {}
    for name, (network, setting) in networks(config).items():
        shown = {m: f"{m} members, {FIT}" if m > 1 else f"1 member, {FIT}" for m in config.members}
        with chunks_of_fit({shown[m]: by_fit(network, setting, config.chunk, m) for m in shown}) as fits:
            timings = take_turns(
                {
                    f"1 member, {PLAIN}": (by_plain_loop(network, setting, config.loop_steps), config.loop_steps),
                    **{shown[m]: (fits[shown[m]], m * config.chunk) for m in shown},
                },
                config.rounds,
            )
        base = timings[f"1 member, {PLAIN}"]
        tables[f"{name}, members in one program"] = [
            row(form, t, base, **{"member-steps/s": 1e3 / t.ms}) for form, t in timings.items()
        ]
    return tables
