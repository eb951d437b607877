import numpy as np
import pytest
from PIL import Image

from ct_dip.pages.figures import png_bytes, reconstruction_panel, save_png

IMAGE = np.random.default_rng(0).random((12, 16))


def titles(figure):
    return [axis.get_title() for axis in figure.axes if axis.get_title()]


def labels(figure):
    return [axis.get_ylabel() for axis in figure.axes] + [axis.get_xlabel() for axis in figure.axes]


def test_panels_have_titles_units_and_colour_bars():
    figure = reconstruction_panel({"TV": IMAGE}, pixel_size=0.5, truth=IMAGE + 0.1)
    spread = np.ptp(IMAGE)
    assert titles(figure) == [
        f"TV, {20 * np.log10(spread / 0.1):.1f} dB",
        "ground truth",
        "TV − ground truth",
    ]
    assert {"attenuation (1/mm)", "error (1/mm)", "x (mm)", "y (mm)"} <= set(labels(figure))
    # 16 columns of 0.5 mm, 12 rows
    assert figure.axes[0].images[0].get_extent() == [-4, 4, -3, 3]


def test_images_share_a_scale():
    figure = reconstruction_panel({"A": IMAGE, "B": 3 * IMAGE}, pixel_size=1.0, truth=IMAGE)
    grey = [axis.images[0].get_clim() for axis in figure.axes[:3]]
    assert len(set(grey)) == 1
    assert grey[0] == pytest.approx((IMAGE.min(), IMAGE.max()))


def test_a_measured_scan_has_a_reference_not_a_truth():
    figure = reconstruction_panel({"A": IMAGE}, pixel_size=1.0, truth=IMAGE, truth_name="reference")
    assert not any("truth" in title for title in titles(figure))
    assert titles(reconstruction_panel({"A": IMAGE}, pixel_size=1.0)) == ["A"]


def test_pictures_are_reproducible_files(tmp_path):
    first, again = (png_bytes(reconstruction_panel({"A": IMAGE}, pixel_size=1.0)) for _ in range(2))
    assert first == again
    save_png(reconstruction_panel({"A": IMAGE}, pixel_size=1.0), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size[0] > 300


@pytest.mark.parametrize("title", ["a measured scan of a walnut, " * 4, "walnut_" * 20, "WALNUT MMM " * 8])
def test_titles_stay_inside_the_picture(title):
    figure = reconstruction_panel({"A": IMAGE}, pixel_size=1.0, title=title)
    png_bytes(figure)  # lays it out
    frame, heading = figure.bbox, figure.texts[0].get_window_extent()
    assert frame.x0 <= heading.x0 < heading.x1 <= frame.x1
    image = figure.axes[0].get_window_extent()
    assert image.y1 < heading.y0 < heading.y1 <= frame.y1
    assert image.width > 0.3 * frame.width


def test_a_long_title_with_signs_of_mathematics_is_shortened():
    figure = reconstruction_panel({"A": IMAGE}, pixel_size=1.0, title=r"$\frac{" + "x" * 60_000)
    assert len(figure.get_suptitle()) < 220
    assert png_bytes(figure)


def test_deviations_of_several_images_are_drawn_below_the_truth():
    figure = reconstruction_panel({"A": IMAGE, "B": 2 * IMAGE}, pixel_size=1.0, truth=IMAGE, std=IMAGE)
    assert titles(figure)[2:] == [
        "ground truth",
        "A − ground truth",
        "B − ground truth",
        "standard deviation",
    ]
    png_bytes(figure)  # lays it out
    above, below = (
        axis for axis in figure.axes if axis.get_title() in ("ground truth", "standard deviation")
    )
    assert below.get_window_extent().y1 < above.get_window_extent().y0
    assert below.get_window_extent().x0 == pytest.approx(above.get_window_extent().x0, abs=1)
