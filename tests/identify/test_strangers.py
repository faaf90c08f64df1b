"""identify on learners that its suite did not draw: right or refused, never another name.

A sample runs always; ``python -m pytest tests/identify/test_strangers.py --strangers`` asks all of them, in up to an
hour, and prints a table.
"""

from strangers import STRANGERS

from icl_lab.identify import identify

REFUSED = ("none of these", "not separable")


def pytest_generate_tests(metafunc):
    if "stranger" in metafunc.fixturenames:
        asked = [one for one in STRANGERS if one.quick or metafunc.config.getoption("strangers")]
        metafunc.parametrize("stranger", asked, ids=lambda one: one.name)


def test_a_stranger_is_named_rightly_or_refused(stranger, pytestconfig, capsys):
    found = identify(
        stranger.make(),
        context_length=stranger.context_length,
        input_size=stranger.input_size,
        sampler=stranger.sampler(),
    )
    member, name = found.members[0], found.family
    if pytestconfig.getoption("strangers"):
        expected = [*stranger.allowed, *["refused"] * (not stranger.must_name)]
        numbers = f"{member.residual:9.4f} {member.asymmetry:9.4f} {member.stability:9.3f}"
        with capsys.disabled():
            print(f"\n{stranger.name:34} {name or found.verdict:34} {numbers}  {' | '.join(expected)}")
    if found.verdict in REFUSED:
        assert not stranger.must_name, member.reason
    else:
        assert name in stranger.allowed, str(found)
        assert not stranger.evidence or member.evidence
