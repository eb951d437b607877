"""The files of a comparison in one folder: a page, a CSV file of every figure, its legend, a LaTeX table."""

from pathlib import Path

from ct_dip.data.column_legend import HEADING, legend_path
from ct_dip.data.method_table import MethodTable
from ct_dip.errors import InputError
from ct_dip.files import check_writable
from ct_dip.pages.compare_page import MARK as PAGE_MARK
from ct_dip.pages.compare_page import write_compare_page
from ct_dip.pages.table_files import FIRST, write_csv, write_latex
from ct_dip.pages.table_files import MARK as LATEX_MARK

PAGE, CSV, LATEX = "comparison.html", "comparison.csv", "comparison.tex"


def write_comparison(folder: Path, table: MethodTable) -> tuple[Path, Path, Path]:
    """Write the page, the CSV file and the LaTeX table; return their paths."""
    page, csv, latex = (folder / name for name in (PAGE, CSV, LATEX))
    write_compare_page(page, table)
    write_csv(csv, table)
    write_latex(latex, table)
    return page, csv, latex


def check_folder(folder: Path) -> None:
    """Refuse to replace files that `write_comparison` did not write, and folders that cannot be written."""
    marks = {PAGE: PAGE_MARK, CSV: ",".join(FIRST), LATEX: LATEX_MARK}
    marks[legend_path(Path(CSV)).name] = ",".join(HEADING)
    for name, mark in marks.items():
        path = folder / name
        check_writable(path)
        if not path.exists():
            continue
        with path.open("rb") as file:
            start = file.read(1000)
        if mark.encode() not in start:
            raise InputError(f"{path} was not written by ct-dip compare; choose another --out, or remove it")
