"""Imports go one way, in the order below, and every source file has a test."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Every module or package of ct_dip; it imports itself and what stands before it. CONTRIBUTING.md draws this.
# `config` stands below the mathematics: its sections are plain values, which dip, priors and posterior take.
# `quality` and `checkpoint` do too: they know of arrays, and of tensors on disk, and of no method.
ORDER = """
    errors arrays text checks files labels plain_yaml
    memory devices progress progress_bars checkpoint quality config
    geometry scanners convert operators solvers
    data preprocess classical image_space importers
    dip tangent priors evidence posterior weight_posterior
    evaluation run_plan method methods pipeline run_together compare_methods select_settings batch
    pages ct_dip cli __main__
""".split()

# Libraries that few packages import: below cli/ only bars of progress talk, nothing below pages/ plots.
OWNERS = {
    "matplotlib": {"pages"},
    "jinja2": {"pages"},
    "typer": {"cli"},
    "rich": {"cli", "progress_bars"},
    "IPython": {"progress_bars"},
}

# Where files are tested that have no test file of their own name.
TESTED_IN = {
    "__init__.py": "test_public_names.py",
    "__main__.py": "cli/test_bad_input.py",
    "evaluation/mean_scores.py": "evaluation/test_score.py",
    "evaluation/patch_likelihood.py": "evaluation/test_score.py",
    "evaluation/pixel_scores.py": "evaluation/test_score.py",
    "evaluation/pixels.py": "evaluation/test_coverage.py",
    "batch/engine.py": "batch/test_evaluate.py",
    "batch/score_files.py": "batch/test_evaluate.py",
    "batch/work.py": "batch/test_evaluate.py",
    "checks.py": "test_geometry.py",
    "classical/cgls.py": "classical/test_iterative.py",
    "classical/filters.py": "classical/test_fbp.py",
    "classical/redundancy.py": "classical/test_fbp.py",
    "classical/tv.py": "classical/test_iterative.py",
    "cli/__init__.py": "cli/test_verbs.py",
    "cli/demo.py": "cli/test_verbs.py",
    "cli/select.py": "test_select_settings.py",
    "cli/export.py": "cli/test_export_query.py",
    "cli/import_.py": "importers/test_faults.py",
    "cli/info.py": "cli/test_verbs.py",
    "cli/methods.py": "methods/test_plugin.py",
    "cli/options.py": "cli/test_bad_input.py",
    "cli/plan.py": "test_plan.py",
    "cli/query.py": "cli/test_export_query.py",
    "cli/reconstruct.py": "cli/test_whole_job.py",
    "cli/report.py": "pages/test_report_page.py",
    "cli/simulate.py": "cli/test_verbs.py",
    "convert/astra.py": "convert/test_round_trips.py",
    "convert/odl.py": "convert/test_round_trips.py",
    "convert/tomosipo.py": "convert/test_round_trips.py",
    "convert/vectors.py": "convert/test_round_trips.py",
    "data/datasets/__init__.py": "data/datasets/test_scan_files.py",
    "data/datasets/dataset.py": "data/datasets/test_scan_files.py",
    "data/datasets/hdf5_stacks.py": "data/datasets/test_lodopab.py",
    "data/datasets/slices.py": "data/datasets/test_write_lodopab.py",
    "data/hdf5.py": "data/test_files.py",
    "data/mask_file.py": "cli/test_export_query.py",
    "data/plain_json.py": "data/test_scores.py",
    "data/prediction.py": "test_pipeline.py",
    "data/probe.py": "data/test_plain_hdf5.py",
    "data/reference_file.py": "data/test_comparison.py",
    "data/result_file.py": "data/test_files.py",
    "data/run_doubts.py": "pages/test_findings.py",
    "data/scan_file.py": "data/test_files.py",
    "dip/adam.py": "dip/test_parts.py",
    "dip/config.py": "dip/test_unet.py",
    "dip/dropout.py": "methods/test_members.py",
    "dip/ensemble.py": "dip/test_fit.py",
    "dip/objective.py": "dip/test_parts.py",
    "dip/presets.py": "dip/test_unet.py",
    "dip/schedule.py": "dip/test_parts.py",
    "dip/snapshots.py": "methods/test_members.py",
    "dip/stopping.py": "dip/test_parts.py",
    "dip/swag.py": "methods/test_members.py",
    "errors.py": "cli/test_bad_input.py",
    "evidence/conditional.py": "posterior/test_given_tv.py",
    "evidence/fit.py": "evidence/test_evidence.py",
    "evidence/laplace.py": "evidence/test_evidence.py",
    "evidence/marginal.py": "evidence/test_evidence.py",
    "evidence/model.py": "evidence/test_evidence.py",
    "importers/array_file.py": "importers/test_formats.py",
    "importers/build.py": "importers/test_rows.py",
    "importers/content.py": "importers/test_formats.py",
    "importers/describe.py": "importers/test_more_formats.py",
    "importers/flats.py": "importers/test_more_formats.py",
    "importers/formats/__init__.py": "importers/test_formats.py",
    "importers/formats/arrays.py": "importers/test_formats.py",
    "importers/formats/data_exchange.py": "importers/test_formats.py",
    "importers/formats/fips_lotus.py": "importers/test_more_formats.py",
    "importers/formats/fips_walnut.py": "importers/test_formats.py",
    "importers/formats/htc2022.py": "importers/test_formats.py",
    "importers/formats/lodopab.py": "importers/test_dataset_items.py",
    "importers/formats/nikon.py": "importers/test_more_formats.py",
    "importers/formats/nxtomo.py": "importers/test_more_formats.py",
    "importers/formats/tiff_folder.py": "importers/test_more_formats.py",
    "importers/formats/tiff_sinogram.py": "importers/test_more_formats.py",
    "importers/formats/two_detect.py": "importers/test_dataset_items.py",
    "importers/frames.py": "importers/test_formats.py",
    "importers/grid.py": "importers/test_formats.py",
    "importers/matlab.py": "importers/test_formats.py",
    "importers/open.py": "importers/test_faults.py",
    "importers/options.py": "importers/test_faults.py",
    "importers/recording.py": "importers/test_formats.py",
    "importers/reference.py": "importers/test_formats.py",
    "importers/run.py": "importers/test_formats.py",
    "importers/tiff.py": "importers/test_more_formats.py",
    "labels.py": "operators/test_sparse.py",
    "method.py": "methods/test_plugin.py",
    "methods/__init__.py": "methods/test_plugin.py",
    "methods/cgls.py": "test_pipeline.py",
    "methods/gmrf.py": "methods/test_image_space.py",
    "methods/lmrf.py": "methods/test_image_space.py",
    "methods/matern_gp.py": "methods/test_image_space.py",
    "methods/dip.py": "test_pipeline.py",
    "methods/ensemble.py": "methods/test_members.py",
    "methods/fbp.py": "test_pipeline.py",
    "methods/laplace_diag.py": "methods/test_laplace_methods.py",
    "methods/laplace_kfac.py": "methods/test_laplace_methods.py",
    "methods/laplace_last_layer.py": "methods/test_laplace_methods.py",
    "methods/laplace_subnetwork.py": "methods/test_laplace_methods.py",
    "methods/lin_dip/__init__.py": "test_pipeline_parts.py",
    "methods/lin_dip/config.py": "test_config.py",
    "methods/lin_dip/inference.py": "methods/test_trial.py",
    "methods/lin_dip/prediction.py": "test_pipeline_parts.py",
    "methods/lin_dip/seconds.py": "test_plan.py",
    "methods/lin_dip/trial.py": "methods/test_trial.py",
    "methods/mc_dropout.py": "methods/test_members.py",
    "methods/snapshot.py": "methods/test_members.py",
    "methods/swag.py": "methods/test_members.py",
    "methods/mfvi.py": "methods/test_variational.py",
    "methods/sparse_vd.py": "methods/test_variational.py",
    "methods/tv.py": "test_pipeline.py",
    "methods/tv_gauss.py": "methods/test_image_space.py",
    "methods/tv_langevin.py": "methods/test_image_space.py",
    "operators/__init__.py": "operators/test_ray_transforms.py",
    "operators/assembly.py": "operators/test_sparse.py",
    "operators/astra.py": "operators/test_ray_transforms.py",
    "operators/basic_maps.py": "operators/test_algebra.py",
    "operators/cache.py": "operators/test_sparse.py",
    "operators/linear_map.py": "operators/test_algebra.py",
    "operators/odl.py": "operators/test_ray_transforms.py",
    "operators/ray.py": "operators/test_ray_transforms.py",
    "operators/tomosipo.py": "operators/test_ray_transforms.py",
    "operators/whitened.py": "operators/test_ray_transforms.py",
    "plain_yaml.py": "test_config.py",
    "posterior/compressed_tv.py": "posterior/test_given_tv.py",
    "posterior/config.py": "posterior/test_fit.py",
    "posterior/conditional.py": "posterior/test_compressed.py",
    "posterior/digests.py": "posterior/test_regime_faults.py",
    "posterior/deviations.py": "posterior/test_fit.py",
    "posterior/exact_model.py": "posterior/test_exact.py",
    "posterior/infer.py": "posterior/test_regime_faults.py",
    "posterior/inferred.py": "posterior/test_regime_faults.py",
    "posterior/posterior.py": "posterior/test_fit.py",
    "posterior/choose_prior.py": "posterior/test_problem.py",
    "preprocess/air.py": "preprocess/test_repairs.py",
    "preprocess/beam_hardening.py": "preprocess/test_repairs.py",
    "preprocess/opposite_rays.py": "preprocess/test_doubts.py",
    "preprocess/outliers.py": "preprocess/test_repairs.py",
    "preprocess/slips.py": "preprocess/test_doubts.py",
    "preprocess/stripes.py": "preprocess/test_repairs.py",
    "priors/complement.py": "posterior/test_fit.py",
    "priors/covariance.py": "posterior/test_problem.py",
    "run_plan.py": "test_plan.py",
    "run_together.py": "batch/test_together.py",
    "pages/certainty.py": "pages/test_mask.py",
    "pages/choice_charts.py": "pages/test_compare_page.py",
    "pages/comparison_files.py": "cli/test_compare.py",
    "pages/finding.py": "pages/test_findings.py",
    "pages/packed.py": "pages/test_report_page.py",
    "pages/report.py": "pages/test_report_page.py",
    "pages/dataset_cases.py": "pages/test_dataset_page.py",
    "pages/dataset_charts.py": "pages/test_dataset_page.py",
    "pages/evaluation_rows.py": "pages/test_dataset_page.py",
    "scanners.py": "test_geometry.py",
    "solvers/products.py": "solvers/test_conjugate_gradients.py",
    "tangent/grams.py": "tangent/test_statistics.py",
    "tangent/linearise.py": "tangent/test_jacobian.py",
    "tangent/taps.py": "tangent/test_statistics.py",
    "tangent/unet/conv_inputs.py": "tangent/unet/test_jacobian.py",
    "tangent/unet/layers.py": "tangent/unet/test_jacobian.py",
    "tangent/unet/linearised.py": "tangent/unet/test_jacobian.py",
    "tangent/unet/maps.py": "tangent/unet/test_jacobian.py",
    "text.py": "test_config.py",
    "weight_posterior/curvature.py": "weight_posterior/test_laplace.py",
    "weight_posterior/drawn.py": "weight_posterior/test_laplace.py",
    "weight_posterior/kfac.py": "weight_posterior/test_laplace.py",
    "weight_posterior/linearised_scan.py": "weight_posterior/test_laplace.py",
    "weight_posterior/potential.py": "methods/test_sgld.py",
    "weight_posterior/variational_dropout.py": "weight_posterior/test_mean_field.py",
}
NOTHING_TO_TEST = {"arrays.py"}  # names of types


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {
    path: ast.parse(path.read_text())
    for folder in ("ct_dip", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
PATHS = {module_of(path): path for path in TREES}
SOURCES = {name: path for name, path in PATHS.items() if name.split(".")[0] == "ct_dip"}


def imports_of(tree):
    """Modules that a file imports anywhere, also in functions and for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"from {'.' * node.level}{node.module or ''}: write the whole name"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in PATHS else node.module


IMPORTS = {name: set(imports_of(TREES[path])) for name, path in PATHS.items()}
WRITTEN = {name: set(imported) for name, imported in IMPORTS.items()}
# Public names are loaded when they are used, from where the stub says.
IMPORTS["ct_dip"] |= {
    f"ct_dip.{node.module}" if node.module else f"ct_dip.{node.names[0].name}"
    for node in ast.parse((ROOT / "ct_dip/__init__.pyi").read_text()).body
    if isinstance(node, ast.ImportFrom)
}
# Methods are found by their names, when somebody asks for one.
IMPORTS["ct_dip.methods"] |= {name for name in PATHS if name.startswith("ct_dip.methods.")}


def package_of(module):
    """The name that stands in ORDER: ``ct_dip.dip.fit`` is of ``dip``, the top package of ``ct_dip``."""
    return module.split(".")[1] if "." in module else module


def upward(module, imported):
    """Whether an import is against ORDER."""
    return ORDER.index(package_of(imported)) > ORDER.index(package_of(module))


def reached(module):
    """Every module that is loaded, now or later, because of one."""
    found, left = set(), [module]
    while left:
        new = (IMPORTS[left.pop()] & PATHS.keys()) - found
        found |= new
        left += new
    return found


def test_the_order_names_every_package_once():
    assert sorted(ORDER) == sorted({package_of(name) for name in SOURCES})


@pytest.mark.parametrize("module", SOURCES)
def test_nothing_imports_upward(module):
    ours = IMPORTS[module] & PATHS.keys()
    assert ours <= SOURCES.keys(), "the package imports its tests"
    assert [name for name in ours if upward(module, name)] == []


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("def f():\n    from ct_dip.posterior.fit import fit_posterior", "ct_dip.posterior.fit"),
        ("if TYPE_CHECKING:\n    from ct_dip.posterior import fit", "ct_dip.posterior.fit"),
        ("import ct_dip.posterior.fit as fit", "ct_dip.posterior.fit"),
        ("from ct_dip import reconstruct", "ct_dip"),
    ],
)
def test_an_upward_import_is_found_wherever_it_hides(text, imported):
    assert list(imports_of(ast.parse(text))) == [imported]
    assert upward("ct_dip.dip.fit", imported)
    assert not upward("ct_dip.cli.plan", imported)


def test_no_module_imports_itself_through_others():
    graph = {name: WRITTEN[name] & SOURCES.keys() for name in SOURCES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


@pytest.mark.parametrize(("library", "owner"), OWNERS.items())
def test_libraries_stay_with_their_package(library, owner):
    users = {
        package_of(module)
        for module in SOURCES
        if library in {name.split(".")[0] for name in IMPORTS[module]}
    }
    assert users == owner


def test_settings_alone_use_pydantic():
    users = {name for name in SOURCES if "pydantic" in IMPORTS[name]}
    settings = {name for name in SOURCES if name.endswith(".config") or package_of(name) == "methods"}
    assert users <= settings


def test_only_the_command_line_prints():
    users = {
        package_of(module)
        for module, path in SOURCES.items()
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert users == {"cli"}


def has_code(path):
    return any(not isinstance(statement, ast.Expr) for statement in TREES[path].body)


def test_every_file_has_its_test():
    without = set()
    for path in filter(has_code, SOURCES.values()):
        relative = path.relative_to(ROOT / "ct_dip")
        if ROOT / "tests" / relative.with_name(f"test_{relative.name}") not in TREES:
            without.add(relative.as_posix())
    assert without - NOTHING_TO_TEST == TESTED_IN.keys(), "name a test for each, or drop what has one"


@pytest.mark.parametrize(("source", "test"), TESTED_IN.items())
def test_the_named_test_uses_the_file(source, test):
    module, user = module_of(ROOT / "ct_dip" / source), module_of(ROOT / "tests" / test)
    if source in ("__main__.py", "data/probe.py"):  # which are run in a process of their own
        return
    assert module in reached(user)


def test_contributing_draws_the_order():
    picture = (ROOT / "CONTRIBUTING.md").read_text().split("```")[1]
    assert [word for word in re.findall(r"\w+", picture) if word in ORDER] == ORDER


def test_the_vocabulary_names_files_that_exist():
    files = re.findall(r"`(ct_dip/[^`]+)`", (ROOT / "docs/vocabulary.md").read_text())
    assert len(files) > 50
    assert [file for file in files if not (ROOT / file).is_file()] == []
