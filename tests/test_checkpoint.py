"""Stage files: what was written comes back, and what is damaged or of other inputs is made again."""

import json
import re

import numpy as np
import pytest
import torch

from ct_dip.checkpoint import BITS, load_checkpoint, save_checkpoint, stage_object, take
from ct_dip.dip.config import DipConfig
from ct_dip.dip.fit import fit_dip
from ct_dip.errors import InputError
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from tests import tiny

STATE = {"first": torch.arange(5000.0), "second": torch.ones(3, 2, dtype=torch.float64)}


@pytest.fixture
def path(tmp_path):
    save_checkpoint(tmp_path / "stage.npz", "mine", STATE)
    return tmp_path / "stage.npz"


def stage(path, digest="mine", from_state=dict):
    """What a stage has now, and whether it was computed again."""
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
    with pytest.raises(InputError, match=r"stage\.npz differs from this run; use another run folder"):
        load_checkpoint(path, "other")
    assert stage(path, "other")[1]
    assert load_checkpoint(path, "other").keys() == {"first"}


def test_what_was_changed_is_made_again(path):
    """With the digest of its inputs, but another content."""
    np.savez(path, digest="mine", first=np.zeros(1))
    with pytest.raises(InputError, match=r"stage\.npz cannot be read .*changed.* remove it"):
        load_checkpoint(path, "mine")
    assert stage(path)[1]


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "words"),
    [
        ("third", (3, 2), torch.float64, "no tensor 'third'"),
        ("second", (3, 3), torch.float64, "(3, 2)"),
        ("second", (3,), torch.float64, "(3, 2)"),
        ("second", (3, 2), torch.float32, "torch.float64"),
        ("nan", (1,), torch.float32, "finite"),
    ],
)
def test_a_tensor_that_is_not_as_it_must_be_is_refused(name, shape, dtype, words):
    state = STATE | {"nan": torch.tensor([torch.nan])}
    assert take(state, "second", (None, 2), torch.float64) is STATE["second"]
    with pytest.raises(InputError, match=re.escape(words)):
        take(state, name, shape, dtype)


def _changes(tensor):
    yield "dropped", None
    yield "deeper", tensor[None]
    yield "integers", tensor.to(torch.int16)
    if tensor.ndim and len(tensor):
        yield "shorter", tensor[:-1]
    if tensor.is_floating_point():
        yield "nan", torch.full_like(tensor, torch.nan)


def _mutants(path):
    """A stage file with one of its tensors changed, in every way, its labels being right."""
    with np.load(path) as arrays:
        digest = str(arrays["digest"])
    state = load_checkpoint(path, digest)
    before = path.read_bytes()
    for name in state:
        if name.endswith("00001"):  # of many parts that are alike
            break
        for kind, tensor in _changes(state[name]):
            others = {key: value for key, value in state.items() if key != name}
            save_checkpoint(path, digest, others if tensor is None else others | {name: tensor})
            yield name, kind
    path.write_bytes(before)


# Records of a search, in which −inf and a missing end have a meaning of their own.
RECORDS = {("evidence.npz", name, kind) for name in ("found", "trace") for kind in ("shorter", "nan")}


@pytest.mark.parametrize(
    ("regime", "files"),
    [
        ("exact", ["features.npz", "evidence.npz"]),
        ("compressed", ["compression-0.npz", "samples-000.npz"]),
    ],
)
def test_a_stage_with_any_tensor_changed_is_computed_again(tmp_path, regime, files):
    config = InferenceConfig(starts=1, regime=regime, samples=20, deviations="samples")

    def std():
        return fit_posterior(tiny.dip_fit(), tiny.scan(), config, run_folder=tmp_path).std

    whole = std()
    for file in files:
        good = (tmp_path / file).read_bytes()
        for name, kind in _mutants(tmp_path / file):
            np.testing.assert_array_equal(std(), whole, err_msg=f"{file} {name} {kind}")
            if (file, name, kind) not in RECORDS:
                assert (tmp_path / file).read_bytes() == good, (file, name, kind)


def test_a_fit_with_any_tensor_changed_is_refused(tmp_path):
    quick = {"max_steps": 6, "warmup_steps": 2, "cooldown_steps": 2, "strength": 0.3}
    config = DipConfig(channels=(4, 4), preset="small", **quick)
    fit_dip(tiny.scan(), config, run_folder=tmp_path)
    path = tmp_path / "dip.npz"
    tried = 0
    for name, kind in _mutants(path):
        if (name, kind) == ("trace.psnr", "dropped"):
            continue
        if name.startswith(("trace.", "rule.")) and kind == "nan":
            continue
        tried += 1
        with pytest.raises(InputError, match=r"dip\.npz is damaged .*remove it"):
            fit_dip(tiny.scan(), config, run_folder=tmp_path)
    assert tried > 30


def test_there_may_be_none(tmp_path):
    assert load_checkpoint(tmp_path / "stage.npz", "mine") is None


def labelled(**parts):
    return json.dumps({"scan": "a" * 64, "threads": 2, "device": "cpu", "dip": {"ramp": 1.0}} | parts)


def test_what_differs_is_named(tmp_path):
    path = tmp_path / "stage.npz"
    save_checkpoint(path, labelled(), STATE)
    assert load_checkpoint(path, labelled()) is not None
    for parts, words in (
        ({"threads": 1}, "differs in: threads was 2 and is 1; continue with --resume compatible"),
        ({"device": "cuda:0"}, "differs in: device was cpu and is cuda:0; continue with --resume"),
        ({"dip": {"ramp": 0.5}}, r"differs in: dip\.ramp was 1\.0 and is 0\.5; use another run folder"),
        ({"scan": "b" * 64}, "differs in: scan; use another run folder"),
        ({"scan": "b" * 64, "threads": 1}, "differs in: scan, threads was 2 and is 1; use another"),
    ):
        with pytest.raises(InputError, match=words):
            load_checkpoint(path, labelled(**parts))


def test_what_decides_the_last_bits_alone_may_differ_if_the_user_says_so(tmp_path):
    path, notes = tmp_path / "stage.npz", []
    save_checkpoint(path, labelled(), STATE)
    state = load_checkpoint(path, labelled(threads=1, device="cuda"), tolerate=BITS, note=notes.append)
    assert state is not None
    assert notes == [
        f"continuing {path}, which began with other settings: threads was 2 and is 1, device was cpu and is "
        "cuda"
    ]
    with pytest.raises(InputError, match=r"differs in: dip\.ramp"):
        load_checkpoint(path, labelled(dip={"ramp": 0.5}), tolerate=BITS)
