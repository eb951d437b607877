"""Run one benchmark: ``python -m benchmarks operators [--json]``; with ``--help``, its own options."""

import argparse
import importlib
import json
import sys

from benchmarks.measure import Row
from ct_dip.errors import InputError
from ct_dip.memory import keep_freed

BENCHMARKS = {
    "batch": "benchmarks.batch",
    "compressed": "benchmarks.compressed",
    "cuqipy-fields": "benchmarks.cuqipy_fields",
    "operators": "benchmarks.operators",
    "dip-kmnist": "benchmarks.dip_kmnist",
    "dip-ensemble": "benchmarks.dip_ensemble",
    "dip-real": "benchmarks.dip_real",
    "evidence-fit": "benchmarks.evidence_fit",
    "kmnist-loglik": "benchmarks.kmnist_loglik",
    "methods": "benchmarks.methods",
    "objects": "benchmarks.objects",
    "scaling": "benchmarks.scaling",
    "tangent-products": "benchmarks.tangent_products",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=sorted(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="one JSON object per line on standard output")
    named = next((word for word in sys.argv[1:] if word in BENCHMARKS), None)
    module = None if named is None else importlib.import_module(BENCHMARKS[named])
    own = hasattr(module, "add_options")
    if module is not None and own:
        module.add_options(parser)
    arguments = parser.parse_args()
    keep_freed()  # as the command line does
    module = module or importlib.import_module(BENCHMARKS[arguments.name])
    spell_row = getattr(module, "spell", spell)
    if hasattr(module, "HEADER") and not arguments.json:
        print(module.HEADER)
    try:
        for row in module.run(arguments) if own else module.run():
            print(json.dumps(row.as_dict(), ensure_ascii=False) if arguments.json else spell_row(row))
            sys.stdout.flush()
    except InputError as error:
        parser.error(str(error))


def spell(row: Row) -> str:
    text = f"{row.benchmark}  {row.case}: {row.value:.3g} {row.unit}"
    if row.ratio is None:
        return text
    return f"{text}, {row.reference} {row.reference_value:.3g} {row.unit}, ratio {row.ratio:.1f}"


if __name__ == "__main__":
    main()
