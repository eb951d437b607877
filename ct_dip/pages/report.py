"""`report`: one HTML page of a result, of a comparison, or of an evaluation on a dataset."""

from pathlib import Path

from ct_dip.batch.score_files import CSV, write_scores
from ct_dip.batch.table import read_facts
from ct_dip.data.method_table import MethodTable
from ct_dip.data.result_file import AnyResult, load_result
from ct_dip.errors import InputError
from ct_dip.files import check_writable
from ct_dip.pages.compare_page import write_compare_page
from ct_dip.pages.dataset_page import write_dataset_page
from ct_dip.pages.report_page import write_report

EVALUATION = "evaluation.html"


def report(
    result: AnyResult | MethodTable, out: str | Path | None = None, *, source: str | None = None
) -> Path:
    """Write a web page that needs no network: what is it, how sure are we, should I believe it?

    Args:
        result: a `Prediction`, the path of a result file, a `MethodTable` that `ct_dip.compare` returned, or
            the folder of `ct_dip.evaluate`, finished or not.
        out: page to write, ``.html``; that of a folder is written into the folder.
        source: what a reader would call the scan; the name of the result file by default.

    Returns:
        The path of the page.

    Raises:
        InputError: the path cannot be that of a page.
    """
    if isinstance(result, str | Path) and Path(result).is_dir():
        if out is not None:
            raise InputError(f"out {out}: the page of a folder is written into the folder; drop it")
        return _evaluation_page(Path(result))
    if out is None:
        raise InputError("the page needs a name; give out, for example report.html")
    out = Path(out)
    if out.suffix not in (".html", ".htm"):
        raise InputError(f"out {out}: a report is a web page; give it the ending .html")
    if isinstance(result, MethodTable):
        write_compare_page(out, result)
        return out
    loaded = load_result(result)
    check_writable(out)
    if isinstance(result, str | Path):
        if out.exists() and out.samefile(result):
            raise InputError(f"out {out} is the result itself; choose another name")
        source = Path(result).name if source is None else source
    write_report(out, loaded, source=source or "")
    return out


def _evaluation_page(folder: Path) -> Path:
    """Write the scores and the page of an evaluation, as far as it has come."""
    rows = write_scores(folder)
    title = str(read_facts(folder).get("dataset", "evaluation"))
    about = f"{CSV} beside this page has every figure."
    write_dataset_page(folder / EVALUATION, rows, title=title, about=about)
    return folder / EVALUATION
