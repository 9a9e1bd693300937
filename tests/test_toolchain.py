# SPDX-License-Identifier: Apache-2.0
"""Where compilers are looked for, and what is said when there is none."""

from __future__ import annotations

import warnings

import pytest

from pyrevoff import _nvrtc, _toolchain, compiler
from pyrevoff.errors import CompilerNotFoundError

HAVE_NVCC = bool(_toolchain.find_nvcc().command)
GPU_SOURCE = 'extern "C" __global__ void kernel_of_ours(int *p) { *p = 1; }'


def script(path, text="exit 0"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def clean_search(tmp_path, monkeypatch):
    for name in ("PYREVOFF_NVCC", "NVCC", "CUDA_PATH", "CUDA_HOME", "PYREVOFF_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(_toolchain, "wheel_folders", list)
    return tmp_path


def test_nvcc_search_order(clean_search, monkeypatch):
    tmp = clean_search
    wheel = tmp / "wheel"
    script(wheel / "bin" / "nvcc")
    places = [
        ("PYREVOFF_NVCC", script(tmp / "a" / "my-nvcc"), None),
        ("NVCC", script(tmp / "b" / "my-nvcc"), None),
        ("CUDA_PATH", script(tmp / "c" / "bin" / "nvcc"), tmp / "c"),
        ("CUDA_HOME", script(tmp / "d" / "bin" / "nvcc"), tmp / "d"),
        ("PATH", script(tmp / "e" / "nvcc"), tmp / "e"),
    ]
    for variable, path, folder in places:
        monkeypatch.setenv(variable, str(folder or path))
    monkeypatch.setattr(_toolchain, "wheel_folders", lambda: [wheel])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for variable, path, _ in places:
            assert _toolchain.find_nvcc().command == [path]
            monkeypatch.setenv(variable, "")
        assert _toolchain.find_nvcc().command == [str(wheel / "bin" / "nvcc")]


def test_disagreeing_toolkits_are_told(clean_search, monkeypatch):
    monkeypatch.setenv("CUDA_PATH", str(clean_search / "one"))
    monkeypatch.setenv("CUDA_HOME", str(clean_search / "two"))
    with pytest.warns(UserWarning, match="different toolkits"):
        _toolchain.find_nvcc()
    monkeypatch.setenv("CUDA_HOME", str(clean_search / "one") + ":")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _toolchain.find_nvcc()


def test_missing_nvcc_is_one_paragraph(clean_search, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/nowhere/cuda:")
    monkeypatch.setattr(_toolchain, "_executable", lambda path: False)
    search = _toolchain.find_nvcc()
    text = _toolchain.missing_nvcc(search, "This")
    assert not search.command
    assert "\n" not in text
    assert "/nowhere/cuda/bin/nvcc ($CUDA_HOME)" in text
    assert _toolchain.NVCC_PACKAGE in text


def test_cxx_search_order(clean_search, monkeypatch):
    tmp = clean_search
    folder = tmp / "bin"
    monkeypatch.setenv("PATH", str(folder))
    for name in ("c++", "clang++", "g++"):
        path = script(folder / name)
        assert _toolchain.find_cxx().command == [path]
    monkeypatch.setenv("CXX", f"{script(tmp / 'cxx')} -m64")
    assert _toolchain.find_cxx().command == [str(tmp / "cxx"), "-m64"]
    monkeypatch.setenv("PYREVOFF_CXX", script(tmp / "mine"))
    assert _toolchain.find_cxx().command == [str(tmp / "mine")]


def test_toolkit_root_is_asked_of_a_script(tmp_path):
    nvcc = script(tmp_path / "nvcc", f"echo '#$ TOP={tmp_path}/toolkit/bin/..' >&2")
    (tmp_path / "toolkit" / "bin").mkdir(parents=True)
    assert _toolchain.toolkit_root(nvcc) == (tmp_path / "toolkit").resolve()


@pytest.mark.parametrize("backend", ["auto", "nvrtc", "nvcc"])
def test_no_compiler_for_gpus(clean_search, monkeypatch, backend):
    monkeypatch.setattr(_nvrtc, "_candidates", lambda: iter(["/nowhere/libnvrtc.so.13"]))
    monkeypatch.setattr(_toolchain, "_executable", lambda path: False)
    with pytest.raises(CompilerNotFoundError) as caught:
        compiler.compile_cuda(GPU_SOURCE, backend=backend)
    assert "pip install 'pyrevoff[cuda]'" in str(caught.value)
    tried = {"nvrtc": "/nowhere/libnvrtc.so.13", "nvcc": "/usr/local/cuda"}
    assert tried.get(backend, "/nowhere/libnvrtc.so.13") in str(caught.value)


def test_no_compiler_for_the_cpu_device(clean_search):
    with pytest.raises(CompilerNotFoundError, match="PYREVOFF_CXX"):
        compiler.compile_cpu(GPU_SOURCE)


@pytest.mark.skipif(not HAVE_NVCC, reason="no nvcc here")
def test_auto_takes_nvcc_without_nvrtc(monkeypatch):
    monkeypatch.setattr(_nvrtc, "_candidates", lambda: iter(["/nowhere/libnvrtc.so.13"]))
    assert compiler.compile_cuda(GPU_SOURCE).kind == "ptx"


def test_nvrtc_search_order(tmp_path, monkeypatch):
    wheel, toolkit = tmp_path / "wheel", tmp_path / "toolkit"
    for folder in (wheel / "lib", toolkit / "lib64"):
        folder.mkdir(parents=True)
        (folder / "libnvrtc.so.13").touch()
    monkeypatch.setenv("PYREVOFF_NVRTC", "/mine/libnvrtc.so")
    monkeypatch.setattr(_toolchain, "wheel_folders", lambda: [wheel])
    monkeypatch.setattr(_toolchain, "find_nvcc", lambda: _toolchain.Search(["nvcc"], []))
    monkeypatch.setattr(_toolchain, "toolkit_root", lambda nvcc: toolkit)
    assert list(_nvrtc._candidates()) == [
        "/mine/libnvrtc.so",
        str(wheel / "lib" / "libnvrtc.so.13"),
        str(toolkit / "lib64" / "libnvrtc.so.13"),
        "libnvrtc.so.13",
        "libnvrtc.so.12",
    ]


@pytest.mark.parametrize(
    "variable, find", [("PYREVOFF_NVCC", "find_nvcc"), ("PYREVOFF_CXX", "find_cxx")]
)
def test_our_own_variable_that_names_nothing_is_not_passed_over_in_silence(
    monkeypatch, variable, find
):
    monkeypatch.setenv(variable, "/nonexistent/compiler")
    with pytest.warns(UserWarning, match=f"{variable}: /nonexistent/compiler"):
        getattr(_toolchain, find)()
