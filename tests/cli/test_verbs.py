"""The command line as a user meets it: what it writes, says, and returns."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from ct_dip import __version__
from ct_dip.cli import VERBS, main
from ct_dip.data.result_file import read_result
from ct_dip.data.scan_file import read_scan


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_simulate_reconstruct_info(folder, capsys):
    assert main("simulate --phantom ellipses --size 40 --views 30 --out scan.h5 --seed 3".split()) == 0
    for method in ("fbp", "cgls", "tv"):
        assert main(f"reconstruct scan.h5 --method {method} --out {method}.h5".split()) == 0
    assert names(folder) == sorted(
        ["scan.h5", *(f"{m}.{kind}" for m in ("fbp", "cgls", "tv") for kind in ("h5", "png", "yaml"))]
    )
    output = capsys.readouterr()
    assert "tv of 40 × 40 pixels" in output.out
    assert "\x1b" not in output.out + output.err  # no colours or bars when this is not a terminal
    with Image.open("tv.png") as picture:
        assert picture.size[0] > 600
    # The settings beside a result repeat it, bit for bit.
    assert main("reconstruct scan.h5 --config tv.yaml --out again.h5".split()) == 0
    assert np.array_equal(read_result("again.h5").mean, read_result("tv.h5").mean)
    assert read_result("again.h5").settings == read_result("tv.h5").settings
    assert main("reconstruct scan.h5 --config tv.yaml --out tv.h5".split()) == 2
    assert "tv.yaml" in capsys.readouterr().err
    assert main("reconstruct scan.h5 --method tv --out tv.h5".split()) == 0
    capsys.readouterr()

    assert main(["info", "scan.h5"]) == 0
    summary = capsys.readouterr()
    assert summary.err == ""
    assert "parallel beam" in summary.out
    assert "40 × 40 pixels of 1 mm" in summary.out

    assert main(["info", "tv.h5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["method"] == "tv"
    assert facts["scores"]["psnr"]["value"] == read_result("tv.h5").scores.psnr.value
    assert 0.1 < facts["settings"]["tv"]["strength"] < 10  # what was chosen, not that it was
    assert main(["info", "scan.h5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["geometry"]["views"] == 30
    assert facts["noise"]["kind"] == "white"
    assert facts["digest"] == read_result("tv.h5").scan_digest


def test_the_shell_completes_the_names_of_methods(monkeypatch, capsys):
    monkeypatch.setenv("_CT_DIP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "ct-dip reconstruct scan.h5 --method lin-")
    monkeypatch.setenv("COMP_CWORD", "4")
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == ["lin-dip", "lin-dip-paper", "lin-ensemble"]


def test_the_defaults_are_the_documented_ones(folder):
    main("simulate --size 50 --out scan.h5".split())
    scan = read_scan("scan.h5")
    geometry = scan.geometry
    assert (geometry.kind, geometry.views, geometry.volume.pixel_size) == ("parallel", 60, 1.0)
    assert geometry.detector_pitch == 1.0
    assert geometry.field_of_view >= geometry.volume.radius
    assert geometry.angles[-1] == pytest.approx(np.pi * 59 / 60)
    assert scan.noise.std == pytest.approx(0.05 * np.abs(scan.sinogram).mean(), rel=0.05)


def test_the_same_seed_gives_the_same_files_bit_for_bit(folder):
    for name in ("a", "b"):
        main(f"simulate --size 24 --views 9 --seed 5 --out {name}.h5".split())
        main(f"reconstruct {name}.h5 --method fbp --out {name}-fbp.h5".split())
    assert (folder / "a.h5").read_bytes() == (folder / "b.h5").read_bytes()
    assert (folder / "a-fbp.png").read_bytes() == (folder / "b-fbp.png").read_bytes()
    assert np.array_equal(read_result("a-fbp.h5").mean, read_result("b-fbp.h5").mean)


def test_images_are_scanned_as_the_literature_does(folder):
    rng = np.random.default_rng(0)
    stack = rng.integers(0, 255, (3, 28, 28), dtype=np.uint8)
    np.savez("kmnist.npz", images=stack)
    main(
        "simulate --images kmnist.npz --index 1 --views 20 --detectors 41 --noise 0.05 "
        "--same-grid --out scan.h5".split()
    )
    scan = read_scan("scan.h5")
    np.testing.assert_allclose(scan.ground_truth, stack[1] / 255, rtol=1e-6)
    assert scan.geometry.range_shape == (20, 41)
    assert scan.attenuation_scale == 1.0
    assert scan.source == "kmnist.npz, image 1"


def test_fans_photons_and_arcs(folder):
    main(
        "simulate --size 32 --views 12 --source-origin 100 --origin-detector 50 --photons 4096 "
        "--arc 200 --out scan.h5".split()
    )
    scan = read_scan("scan.h5")
    assert scan.geometry.kind == "fan"
    assert scan.geometry.detector_pitch == pytest.approx(1.5)
    assert scan.geometry.angles[-1] == pytest.approx(np.radians(200) * 11 / 12)
    assert scan.noise.photons == 4096
    main("simulate --size 32 --views 4 --arc 1.5708rad --noise 0 --out clean.h5".split())
    clean = read_scan("clean.h5")
    assert clean.geometry.angles[-1] == pytest.approx(np.pi / 2 * 3 / 4, rel=1e-4)
    assert clean.noise is None


def test_hounsfield_images_have_the_attenuation_of_water(folder):
    np.save("ct.npy", np.pad(np.zeros((20, 20), np.int16), 6, constant_values=-1024))
    assert main("simulate --images ct.npy --hu --views 9 --out scan.h5".split()) == 0
    assert read_scan("scan.h5").ground_truth.max() == pytest.approx(0.02)


def test_settings_reach_the_method(folder):
    main("simulate --size 24 --views 9 --out scan.h5".split())
    (folder / "run.yaml").write_text("method: tv\ntv: {max_iterations: 40}\n")
    main("reconstruct scan.h5 --config run.yaml --set tv.strength=0.3 --backend astra --out r.h5".split())
    result = read_result("r.h5")
    assert result.settings["tv"] == {
        "strength": 0.3,
        "isotropic": True,
        "tolerance": 1e-3,
        "max_iterations": 40,
    }
    assert result.settings["backend"] == "astra"


def test_demo_leaves_a_result_and_a_page(folder, capsys, monkeypatch):
    # The module's name is shadowed by its verb.
    monkeypatch.setattr(sys.modules["ct_dip.cli.demo"], "PRESETS", {"fast": (16, 12)})
    assert main(["demo", "--preset", "fast", "--out", "here"]) == 0
    assert names(folder / "here") == ["comparison.html", "report.html", "result.h5", "scan.h5"]
    result = read_result("here/result.h5")
    assert result.method == "lin-dip"
    assert result.settings["preset"] == "fast"
    for name in ("report.html", "comparison.html"):
        page = (folder / "here" / name).read_text()
        assert "http://" not in page  # one file, nothing fetched
        assert "https://" not in page
    assert f"{result.scores.psnr.value:.2f}" in page
    assert "report.html" in capsys.readouterr().out


def test_help_and_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__
    for verb in VERBS:
        assert main([verb, "--help"]) == 0
        assert "--verbose" in capsys.readouterr().out


def test_lin_dip_from_the_command_line(folder, capsys):
    main("simulate --phantom ellipses --size 16 --views 12 --noise 0.05 --out scan.h5".split())
    quick = "--set dip.channels=[8,8] --set dip.max_steps=60 --set dip.cooldown_steps=20"
    command = f"reconstruct scan.h5 --method lin-dip --hyperprior tv-predcp {quick} --out r.h5"
    assert main(command.split()) == 0
    assert "95 % intervals cover" in capsys.readouterr().out
    result = read_result("r.h5")
    assert result.settings["inference"]["hyperprior"] == "tv-predcp"
    assert result.settings["inference"]["objective"] == "optimum"
    assert result.std is not None
    assert (folder / "r.png").exists()
    main("info r.h5".split())
    summary = capsys.readouterr().out
    assert "inference settings" in summary
    # Stages in the order in which they ran, whoever asks.
    stages = list(result.seconds)
    shown = ("deep image prior", "hyperparameters", "compare with")
    first, second, third = (next(k for k, s in enumerate(stages) if s.startswith(name)) for name in shown)
    assert first < second < third
    (times,) = (line for line in summary.splitlines() if line.startswith("  time "))
    first, second, third = (times.index(f"{name} ") for name in shown)
    assert first < second < third
    main("info r.h5 --json".split())
    assert list(json.loads(capsys.readouterr().out)["seconds"]) == stages
