import numpy as np
import pytest
from PIL import Image

from ct_dip.data.images import load_image
from ct_dip.errors import InputError

PIXELS = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20


def test_pictures_and_arrays_give_the_same_image(tmp_path):
    expected = PIXELS / 255
    Image.fromarray(PIXELS).save(tmp_path / "grey.png")
    Image.fromarray(np.stack([PIXELS] * 3, axis=-1)).save(tmp_path / "colour.png")
    np.save(tmp_path / "one.npy", PIXELS)
    np.save(tmp_path / "floats.npy", expected)
    np.savez(tmp_path / "stack.npz", images=np.stack([PIXELS * 0 + 1, PIXELS]), labels=np.arange(2))
    np.savez(tmp_path / "single.npz", anything=PIXELS)
    for name in ("grey.png", "colour.png", "one.npy", "floats.npy", "single.npz"):
        np.testing.assert_allclose(load_image(tmp_path / name), expected, atol=1e-9)
    np.testing.assert_allclose(load_image(tmp_path / "stack.npz", index=1), expected)


def test_sixteen_bits_are_scaled_by_their_own_range(tmp_path):
    Image.fromarray(PIXELS.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    np.testing.assert_allclose(load_image(tmp_path / "deep.png"), PIXELS / 255, atol=1e-9)


def test_hounsfield_units_become_relative_attenuation(tmp_path):
    np.save(tmp_path / "ct.npy", np.array([[-1024, -1000], [0, 1000]], dtype=np.int16))
    image = load_image(tmp_path / "ct.npy", hounsfield=True)
    np.testing.assert_allclose(image, [[0, 0], [1, 2]])
    with pytest.raises(InputError, match="--hu"):
        load_image(tmp_path / "ct.npy")
    np.save(tmp_path / "eight.npy", PIXELS)
    with pytest.raises(InputError, match="drop --hu"):
        load_image(tmp_path / "eight.npy", hounsfield=True)


@pytest.mark.parametrize("values", [[-5, 3], [0, 70000]])
def test_pictures_of_more_than_sixteen_bits_are_refused(tmp_path, values):
    Image.fromarray(np.array([values, values], dtype=np.int32)).save(tmp_path / "deep.tif")
    with pytest.raises(InputError, match="16 bits"):
        load_image(tmp_path / "deep.tif")


def test_a_damaged_archive_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", images=PIXELS)
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(content[:-60])
    with pytest.raises(InputError, match="cannot be read"):
        load_image(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("array", "index", "words"),
    [
        (np.zeros((2, 3, 3)), None, "--index 0…1"),
        (np.ones((2, 3, 3)), 2, "outside"),
        (np.ones((2, 3, 3)), -1, "outside"),
        (np.ones((3, 3)), 4, "one image"),
        (np.ones(3), None, "shape"),
        (np.ones((2, 2, 2, 2)), 0, "shape"),
        (np.ones((3, 3), dtype=complex), None, "real numbers"),
        (np.full((3, 3), np.nan), None, "not finite"),
        (np.zeros((3, 3)), None, "zero everywhere"),
        (np.zeros((0, 3)), None, "empty"),
        (np.full((3, 3), 200, np.int16), None, "scale is not known"),
    ],
)
def test_what_is_not_an_image_is_refused(tmp_path, array, index, words):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(InputError, match=words):
        load_image(tmp_path / "x.npy", index=index)


def test_pickles_are_never_loaded(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        load_image(tmp_path / "x.npy")


@pytest.mark.parametrize("name", ["text.png", "text.npy", "text.npz"])
def test_files_that_lie_about_their_kind_are_refused(tmp_path, name):
    (tmp_path / name).write_text("not an image")
    with pytest.raises(InputError, match="cannot be read"):
        load_image(tmp_path / name)


def test_missing_files_and_ambiguous_archives_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_image(tmp_path / "nowhere.png")
    np.savez(tmp_path / "two.npz", a=PIXELS, b=PIXELS)
    with pytest.raises(InputError, match="2 arrays"):
        load_image(tmp_path / "two.npz")
