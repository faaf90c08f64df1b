import hashlib

import jax
import numpy as np
import pytest

from icl_lab.prompts.corpus import END_OF_FILE, is_validation, package_sources, sources, windows

# names of both parts, found by the rule itself
NAMES = [f"part{i}.py" for i in range(200)]
TRAINING = [name for name in NAMES if not is_validation(name)][:3]
VALIDATION = [name for name in NAMES if is_validation(name)][:2]


@pytest.fixture
def folder(tmp_path):
    for i, name in enumerate(TRAINING + VALIDATION):
        (tmp_path / name).write_bytes(b"x = %d\n" % i)
    (tmp_path / "notes.txt").write_bytes(b"not a source")
    return tmp_path


def text(part):
    return part.tobytes().split(bytes([END_OF_FILE]))


def test_files_are_whole_sorted_and_in_one_part(folder):
    found = sources(folder)
    written = {name: b"x = %d\n" % i for i, name in enumerate(TRAINING + VALIDATION)}
    assert text(found.training) == [written[name] for name in sorted(TRAINING)] + [b""]
    assert text(found.validation) == [written[name] for name in sorted(VALIDATION)] + [b""]
    assert found.files == len(written)


def test_the_part_is_a_tenth_by_the_hash_of_the_name():
    first = {name: int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32 for name in NAMES}
    assert {name for name in NAMES if is_validation(name)} == {name for name in NAMES if first[name] < 0.1}


@pytest.mark.parametrize("change", ["content", "name", "more"])
def test_any_change_of_a_source_changes_the_digest(folder, change):
    before = sources(folder).digest
    assert sources(folder).digest == before
    one = folder / TRAINING[0]
    if change == "content":
        one.write_bytes(b"x = 9\n")
    elif change == "name":
        one.rename(folder / TRAINING[0].replace("part", "trap"))
    else:
        (folder / "more.py").write_bytes(b"")
    assert sources(folder).digest != before


def test_sources_of_the_pinned_package():
    found = package_sources()
    assert found.files > 300
    share = found.validation.size / (found.training.size + found.validation.size)
    assert 0.02 < share < 0.25
    assert b"import jax" in found.training.tobytes()
    assert len(found.digest) == 64


def test_windows_are_stretches_of_the_text_from_both_ends():
    data = np.arange(7, dtype=np.uint8)
    drawn = np.asarray(windows(data, 5)(jax.random.key(0), 100))
    assert drawn.dtype == np.int32
    assert {tuple(row) for row in drawn} == {tuple(range(start, start + 5)) for start in range(3)}


def test_what_is_no_corpus_is_refused(tmp_path, folder):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match=r"\.py files"):
        sources(empty)
    (empty / TRAINING[0]).write_bytes(b"")
    with pytest.raises(ValueError, match="both parts"):
        sources(empty)
    (folder / TRAINING[1]).write_bytes(b"a\0b")
    with pytest.raises(ValueError, match=TRAINING[1]):
        sources(folder)
    with pytest.raises(FileNotFoundError, match="no_such_package"):
        package_sources("no_such_package")
    with pytest.raises(ValueError, match=r"length must be in \[1, 4\]"):
        windows(np.zeros(4, np.uint8), 5)
    with pytest.raises(ValueError, match="uint8"):
        windows(np.zeros(4), 2)
