import time
import typing

import pytest
import yaml
from pydantic import Field

from ct_dip.classical.filters import FILTERS
from ct_dip.config import RunConfig, Section, Strength
from ct_dip.errors import InputError
from ct_dip.methods import find_method, load_config, method_names
from ct_dip.methods.fbp import FbpConfig
from ct_dip.operators import BACKENDS
from ct_dip.operators.assembly import KERNELS


def choices(model, field):
    return typing.get_args(model.model_fields[field].annotation)


class Knobs(Section):
    """Knobs of a toy."""

    strength: Strength = Field(default="auto", description="Strength of the smoothing; a pure number.")
    steps: int = Field(default=5, ge=1, le=9, description="Steps.")


def test_help_explains_every_setting():
    for line in (
        "Knobs of a toy.",
        "    strength (float | 'auto', default 'auto'): Strength of the smoothing; a pure number.",
        "    steps (int ≥ 1 and ≤ 9, default 5): Steps.",
    ):
        assert line in Knobs.__doc__.splitlines()
    documented = find_method("lin-dip").config.__doc__
    assert "    inference (InferenceConfig, default InferenceConfig())" in documented


def test_the_choices_are_those_of_the_code():
    assert choices(RunConfig, "backend") == BACKENDS
    assert choices(RunConfig, "kernel") == KERNELS
    assert choices(FbpConfig, "filter") == FILTERS


def test_later_words_win(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("method: tv\nseed: 3\ntv: {strength: 0.3, isotropic: false}\n")
    config = load_config(path, settings=["tv.strength=0.5"], seed=7, backend=None)
    assert (config.seed, config.tv.strength, config.tv.isotropic) == (7, 0.5, False)
    assert config.backend == "auto"


def test_the_resolved_configuration_runs_again(tmp_path):
    config = load_config(settings=["tv.strength=0.25"], method="tv", seed=5)
    path = tmp_path / "resolved.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_config(path) == config


@pytest.mark.parametrize("name", method_names())
@pytest.mark.parametrize("side", [28, 64, 512])
def test_a_resolved_configuration_leaves_nothing_open(name, side):
    resolved = load_config(method=name, preset="auto").resolved((side, side))
    sections = [resolved, *(getattr(resolved, section) for section in find_method(name).config.sections())]
    assert all(value is not None for section in sections for value in dict(section).values())
    assert resolved.resolved((side, side)) == resolved


def test_keys_of_a_section_can_be_given_by_themselves():
    assert load_config(method="tv", strength=0.25).tv.strength == 0.25
    both = load_config(method="lin-dip", samples=7, dip={"max_steps": 3}, preset="fast")
    assert (both.inference.samples, both.dip.max_steps, both.preset) == (7, 3, "fast")
    with pytest.raises(InputError, match="strenght is not a known key; did you mean"):
        load_config(method="tv", strenght=1)


def test_a_file_may_serve_several_methods(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("tv: {strength: 0.3}\ndip: {max_steps: 9}\n")
    assert load_config(path, method="tv").tv.strength == 0.3
    assert load_config(path, method="dip").dip.max_steps == 9
    path.write_text("tv: {strength: 0.3}\ndip: {max_stepps: 9}\n")
    with pytest.raises(InputError, match="max_stepps is not a known key; did you mean 'max_steps'"):
        load_config(path, method="tv")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "magic"}, "method.*'magic'"),
        ({"backend": "gpu"}, "backend.*'gpu'"),
        ({"seed": -1}, "seed"),
        ({"settings": ["tv.strenght=1"]}, "did you mean 'strength'"),
        ({"settings": ["tvv.strength=1"]}, "did you mean 'tv'"),
        ({"settings": ["tv.strength=-1"]}, r"^tv\.strength=-1 must be greater than 0 or 'auto'$"),
        ({"settings": ["tv.strength=strong"]}, r"^tv\.strength=strong must be a number or 'auto'$"),
        ({"settings": ["tv.strength"]}, "section.key=value"),
        ({"settings": ["tv.strength=[1"]}, "not a value"),
        ({"settings": ["seed.x=1"]}, "seed"),
        ({"settings": ["cgls.max_iterations=5"]}, "no effect with method 'tv'"),
        ({"settings": ["tv.strength=1"], "method": "fbp"}, "no effect with method 'fbp'"),
        ({"settings": ["cgls={tolerance: 1}"]}, "no effect with method 'tv'"),
        ({"settings": ["tv.strength=.inf"]}, "finite"),
        ({"method": "fbp", "backend": "astra"}, "no effect"),
        ({"threads": 0}, "^threads=0 must be 'auto' or greater than 0$"),
        ({"seed": 1.5}, r"^seed=1\.5 must be an integer$"),
        (
            {"preset": "quick"},
            "^preset 'quick' is not known; choose 'auto', 'fast', 'balanced' or 'thor",
        ),
        ({"tv": 3}, r"^tv is a section; set one of its keys, for example tv\.strength=auto$"),
        ({"settings": ["dip.channels=[]"], "method": "dip"}, "dip.channels.*at least 1 item"),
        ({"settings": ["tv.strength=&a 1"]}, "tv.strength=&a 1.*anchor"),
        ({"settings": ["tv={strength: 1, strength: 2}"]}, "'strength' is given twice"),
        ({"settings": ["seed=" + "9" * 5000]}, "seed=999.*not a value"),
        ({"settings": ["tv=" + "[" * 5000]}, "nested too deeply"),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(InputError, match=words):
        load_config(**{"method": "tv"} | options)


def test_the_default_method_has_error_bars():
    assert "error bars" in find_method(load_config().method).gives


def test_a_key_that_is_there_twice_is_named(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("seed: 1\ntv:\n  strength: 0.5\n  strength: 0.1\n")
    with pytest.raises(InputError, match=r"run\.yaml: key 'strength' is given twice, .* in line 4"):
        load_config(path)
    path.write_text("seed: 1\nmethod: fbp\nseed: 2\n")
    with pytest.raises(InputError, match="'seed' is given twice"):
        load_config(path)


def test_aliases_do_not_multiply(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join([*lines, "seed: *a7"]))
    start = time.perf_counter()
    with pytest.raises(InputError, match=r"laughs\.yaml: line 1 has an anchor or alias"):
        load_config(path)
    assert time.perf_counter() - start < 1


def test_long_values_are_shortened_in_errors(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(f"seed: {'x' * 100_000}\n")
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert len(str(caught.value)) < 500
    path.write_text("x" * 2_000_000)
    with pytest.raises(InputError, match="2,000,000 characters"):
        load_config(path)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "just words", "method: 3", "unknown: 1"])
def test_files_that_are_not_configurations_are_refused(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="configuration"):
        load_config(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_config(tmp_path / "nowhere.yaml")
