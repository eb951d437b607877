"""`report`: one HTML page of a result or of a comparison."""

from pathlib import Path

from ct_dip.data.method_table import MethodTable
from ct_dip.data.result_file import AnyResult, load_result
from ct_dip.errors import InputError
from ct_dip.files import check_writable
from ct_dip.pages.compare_page import write_compare_page
from ct_dip.pages.report_page import write_report


def report(result: AnyResult | MethodTable, path: str | Path, *, source: str | None = None) -> Path:
    """Write a web page that needs no network: what is it, how sure are we, should I believe it?

    Args:
        result: a `Prediction`, the path of a result file, or a `MethodTable` that `ct_dip.compare` returned.
        path: page to write, ``.html``.
        source: what a reader would call the scan; the name of the result file by default.

    Returns:
        The path of the page.

    Raises:
        InputError: the path cannot be that of a page.
    """
    out = Path(path)
    if out.suffix not in (".html", ".htm"):
        raise InputError(f"--out {out}: a report is a web page; give it the ending .html")
    if isinstance(result, MethodTable):
        write_compare_page(out, result)
        return out
    loaded = load_result(result)
    check_writable(out)
    if isinstance(result, str | Path):
        if out.exists() and out.samefile(result):
            raise InputError(f"--out {out} is the result itself; choose another name")
        source = Path(result).name if source is None else source
    write_report(out, loaded, source=source or "")
    return out
