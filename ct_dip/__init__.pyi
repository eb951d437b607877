# The public names of ct_dip, for Python (see __init__.py) and for type checkers.

# Scans
# Modules
from . import memory as memory

# Parts of the methods
from .classical.cgls import cgls as cgls
from .classical.fbp import fbp as fbp
from .classical.tv import tv as tv

# Comparisons
from .compare_methods import compare as compare
from .compare_methods import compare_results as compare_results

# Reconstruction
from .config import RunConfig as RunConfig
from .data.datasets import open_dataset as open_dataset
from .data.datasets.dataset import Dataset as Dataset

# Results
from .data.export import export as export
from .data.method_table import MethodTable as MethodTable
from .data.noise import PhotonNoise as PhotonNoise
from .data.noise import WhiteNoise as WhiteNoise
from .data.phantoms import phantom as phantom
from .data.prediction import Prediction as Prediction
from .data.result_file import read_result as read_result
from .data.result_file import write_result as write_result
from .data.scan import Scan as Scan
from .data.scan_file import read_scan as read_scan
from .data.scan_file import write_scan as write_scan
from .data.scores import Scores as Scores
from .data.simulate import NoiseLevel as NoiseLevel
from .data.simulate import simulate as simulate
from .dip.config import DipConfig as DipConfig
from .dip.ensemble import DipFit as DipFit
from .dip.fit import fit_dip as fit_dip
from .dip.fit import fit_many as fit_many

# Errors
from .errors import BackendError as BackendError
from .errors import CtDipError as CtDipError
from .errors import GeometryError as GeometryError
from .errors import InputError as InputError
from .errors import MemoryBudgetError as MemoryBudgetError
from .errors import MissingPartError as MissingPartError
from .errors import OutputError as OutputError
from .errors import ResultError as ResultError
from .errors import ScanError as ScanError
from .evaluation.region import query as query
from .evaluation.score import score as score

# Geometries and ray transforms
from .geometry import FanBeam as FanBeam
from .geometry import ParallelBeam as ParallelBeam
from .geometry import Volume as Volume
from .importers.run import import_scan as import_scan
from .method import Method as Method
from .methods import find_method as find_method
from .methods import load_config as load_config
from .methods import method_names as method_names
from .operators import ray_transform as ray_transform
from .pages.all_figures import figures as figures
from .pages.report import report as report
from .pipeline import plan as plan
from .pipeline import reconstruct as reconstruct
from .posterior.config import InferenceConfig as InferenceConfig
from .posterior.fit import fit_posterior as fit_posterior
from .posterior.posterior import Posterior as Posterior
from .progress import Progress as Progress
from .quality import psnr as psnr
from .quality import ssim as ssim
from .run_plan import Plan as Plan
from .scanners import scanner as scanner
from .scanners import view_angles as view_angles
from .select_settings import select as select
from .tangent.linearise import linearise as linearise

__version__: str
