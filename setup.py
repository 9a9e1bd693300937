# SPDX-License-Identifier: Apache-2.0
"""Build of pyrevoff; everything that does not change is in pyproject.toml.

Needs a C compiler and nothing of CUDA: the driver is opened at run time, and
the device library's PTX is in the tree. Only where that PTX is older than its
sources is nvcc used, and asked of pip if there is none.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import setuptools
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

if int(setuptools.__version__.split(".")[0]) < 77:  # pip asks for it by itself
    raise SystemExit(
        f"building pyrevoff needs setuptools 77 or later, and this is {setuptools.__version__}: "
        "pip install --upgrade setuptools"
    )

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)  # setuptools takes the paths of sources from here


spec = importlib.util.spec_from_file_location("make_ptx", ROOT / "tools" / "make_ptx.py")
make_ptx = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_ptx)


def refresh_ptx():
    if make_ptx.is_stale():
        make_ptx.write(make_ptx.generate(make_ptx.find_compiler(any_release=True)))


class BuildExt(build_ext):
    def run(self):
        refresh_ptx()
        super().run()


class BuildPy(build_py):
    """Adds headers and PTX; an editable install finds them in the tree."""

    def data(self):
        package = Path(self.build_lib, "pyrevoff")
        headers = ROOT / "csrc" / "include"
        pairs = {package / "ptx" / "pyrevoff.ptx": make_ptx.PTX}
        for header in sorted(headers.rglob("*.h")):
            pairs[package / "include" / header.relative_to(headers)] = header
        return {} if self.editable_mode else pairs

    def run(self):
        refresh_ptx()
        super().run()
        for target, source in self.data().items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode=1):
        return super().get_outputs(include_bytecode) + [str(p) for p in self.data()]


# Under pip, which then puts it beside the build; setuptools alone cannot.
wants_nvcc = (
    "setuptools.build_meta" in sys.modules
    and make_ptx.is_stale()
    and not make_ptx.toolchain.find_nvcc().command
)
# A free-threaded Python has no stable ABI: a wheel of its own is built there.
stable_abi = not sysconfig.get_config_var("Py_GIL_DISABLED")
setuptools.setup(
    cffi_modules=["pyrevoff/_build_ffi.py:ffibuilder"],
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
    options={"bdist_wheel": {"py_limited_api": "cp39"}} if stable_abi else {},
    setup_requires=[make_ptx.toolchain.NVCC_PACKAGE] if wants_nvcc else [],
)
