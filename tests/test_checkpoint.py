"""Stage files: what was written comes back, and what is damaged or of other inputs is made again."""

import pytest
import torch

from ct_dip.checkpoint import load_checkpoint, save_checkpoint, stage_object
from ct_dip.errors import InputError

STATE = {"first": torch.arange(5000.0), "second": torch.ones(3, 2, dtype=torch.float64)}


@pytest.fixture
def path(tmp_path):
    save_checkpoint(tmp_path / "stage.npz", "mine", STATE)
    return tmp_path / "stage.npz"


def stage(path, digest="mine", from_state=dict):
    """What a stage has now, and whether it was computed anew."""
    computed = []

    def compute():
        computed.append(True)
        return {"first": torch.zeros(1)}

    found = stage_object(
        path.parent, path.name, digest, compute=compute, to_state=dict, from_state=from_state
    )
    return found, bool(computed)


def same(found):
    return found.keys() == STATE.keys() and all(torch.equal(found[name], STATE[name]) for name in STATE)


def test_it_comes_back_as_it_was(path):
    assert same(load_checkpoint(path, "mine"))
    found, computed = stage(path)
    assert same(found)
    assert not computed


def test_tensors_are_read_when_they_are_asked_for(path):
    """A state whose first tensor is damaged still has its second."""
    damage(path)

    def look(state):
        names = ("first", "second", "third", "digest", "first.npy")
        return sorted(state), len(state), [name in state for name in names], state["second"]

    found, computed = stage(path, from_state=look)
    assert found[:3] == (["first", "second"], 2, [True, True, False, False, False])
    assert torch.equal(found[3], STATE["second"])
    assert not computed


def test_a_name_that_is_not_there_is_no_damage(path):
    for name in ("third", "digest"):
        with pytest.raises(KeyError):
            stage(path, from_state=lambda state, name=name: state[name])


def damage(path):
    """Of the first tensor, in its middle."""
    content = bytearray(path.read_bytes())
    where = content.index(torch.tensor(2500.0).numpy().tobytes())
    content[where : where + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(bytes(content))


def cut(path):
    path.write_bytes(path.read_bytes()[:4000])


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [damage, cut, empty])
def test_what_is_damaged_is_made_again(path, harm):
    harm(path)
    with pytest.raises(InputError, match=r"stage\.npz cannot be read .* remove it"):
        load_checkpoint(path, "mine")
    found, computed = stage(path)
    assert computed
    assert torch.equal(found["first"], torch.zeros(1))
    assert stage(path)[1] is False  # it was kept


def test_what_belongs_to_other_inputs_is_made_again(path):
    with pytest.raises(InputError, match="belongs to another scan"):
        load_checkpoint(path, "other")
    assert stage(path, "other")[1]
    assert load_checkpoint(path, "other").keys() == {"first"}


def test_there_may_be_none(tmp_path):
    assert load_checkpoint(tmp_path / "stage.npz", "mine") is None
