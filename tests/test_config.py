import typing

import pytest
import yaml

from ct_dip.classical.filters import FILTERS
from ct_dip.config import METHODS, SECTIONS, FbpConfig, RunConfig, load_config
from ct_dip.errors import InputError
from ct_dip.operators import BACKENDS
from ct_dip.operators.assembly import KERNELS


def choices(model, field):
    return typing.get_args(model.model_fields[field].annotation)


def test_the_choices_are_those_of_the_code():
    assert choices(RunConfig, "backend") == BACKENDS
    assert choices(RunConfig, "kernel") == KERNELS
    assert choices(RunConfig, "method") == tuple(METHODS)
    assert choices(FbpConfig, "filter") == FILTERS
    assert set(SECTIONS) <= set(RunConfig.model_fields)


def test_later_words_win(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("method: tv\nseed: 3\ntv: {strength: 0.3, isotropic: false}\n")
    config = load_config(path, settings=["tv.strength=0.5"], seed=7, backend=None)
    assert (config.seed, config.tv.strength, config.tv.isotropic) == (7, 0.5, False)
    assert config.backend == "auto"


def test_the_resolved_configuration_runs_again(tmp_path):
    config = load_config(settings=["tv.strength=0.25"], method="tv", seed=5)
    path = tmp_path / "resolved.yaml"
    path.write_text(yaml.safe_dump(config.resolved()))
    assert load_config(path) == config
    assert set(config.resolved()) & set(METHODS) == {"tv"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "magic"}, "method.*'magic'"),
        ({"backend": "gpu"}, "backend.*'gpu'"),
        ({"seed": -1}, "seed"),
        ({"settings": ["tv.strenght=1"]}, "did you mean 'strength'"),
        ({"settings": ["tvv.strength=1"]}, "did you mean 'tv'"),
        ({"settings": ["tv.strength=-1"]}, "greater than 0"),
        ({"settings": ["tv.strength=strong"]}, "strong"),
        ({"settings": ["tv.strength"]}, "section.key=value"),
        ({"settings": ["tv.strength=[1"]}, "not a value"),
        ({"settings": ["seed.x=1"]}, "seed"),
        ({"settings": ["cgls.max_iterations=5"]}, "no effect with method 'tv'"),
        ({"settings": ["tv.strength=1"], "method": "fbp"}, "no effect with method 'fbp'"),
        ({"settings": ["cgls={tolerance: 1}"]}, "no effect with method 'tv'"),
        ({"settings": ["tv.strength=.inf"]}, "finite"),
        ({"method": "fbp", "backend": "astra"}, "no effect"),
        ({"threads": 0}, "threads"),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(InputError, match=words):
        load_config(**options)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "just words", "method: 3", "unknown: 1"])
def test_files_that_are_not_configurations_are_refused(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="configuration"):
        load_config(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_config(tmp_path / "nowhere.yaml")
