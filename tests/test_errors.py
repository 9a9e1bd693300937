# SPDX-License-Identifier: Apache-2.0
"""Errors: one root, one table, and texts that name things."""

import inspect

import pytest

import pyrevoff as ro
from pyrevoff import errors
from pyrevoff._lib import ffi, lib

CODES = {
    "EINVAL": ValueError,
    "ENODRIVER": ro.NoDriverError,
    "ENODEVICE": ro.NoDeviceError,
    "EDRIVER": ro.DriverError,
    "EIMAGE": ro.ImageError,
    "EABI": ro.AbiError,
    "ENOTFOUND": ro.NotFoundError,
    "ENOMEM": ro.OutOfMemoryError,
    "EBUSY": ro.InUseError,
    "ECLOSED": ro.ClosedError,
    "ELOST": ro.ContextLostError,
    "EUNSUPPORTED": ro.UnsupportedError,
    "ETIMEOUT": ro.LaunchTimeout,
    "EFORKED": ro.ForkError,
    "ECALL": ro.CallError,
    "EHANDLER": ro.CallError,
}


@pytest.fixture
def faults():
    """A driver table in which entries can be made to fail."""
    assert lib.revoff_fault_enable(1) == 0
    yield lambda entry, nth, result: lib.revoff_fault_set(entry.encode(), nth, result)
    lib.revoff_fault_clear()
    lib.revoff_fault_enable(0)


def record(code, text="kernel k: what happened", **fields):
    e = ffi.new("struct revoff_error *")
    e.code, e.text = code, text.encode()
    for name, value in fields.items():
        setattr(e, name, value)
    return e


@pytest.mark.parametrize("name", CODES)
def test_each_code_has_its_class(name):
    error = errors.from_record(record(getattr(lib, f"REVOFF_{name}")))
    assert type(error) is CODES[name]
    assert str(error) == "kernel k: what happened"


def test_every_code_of_c_is_known():
    codes = {n for n in dir(lib) if n.startswith("REVOFF_E")}
    assert codes == {f"REVOFF_{name}" for name in CODES}


def test_all_have_one_root():
    classes = [
        c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__
    ]
    assert len(classes) > 15
    for c in classes:
        assert issubclass(c, ro.RevoffError)
        assert getattr(ro, c.__name__) is c
        assert c.__doc__


def test_driver_error_has_code_name_and_entry():
    e = record(
        lib.REVOFF_EDRIVER,
        driver_code=700,
        driver_name=b"CUDA_ERROR_ILLEGAL_ADDRESS",
        entry=b"cuStreamQuery",
    )
    error = errors.from_record(e)
    assert (error.code, error.name, error.entry) == (
        700,
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "cuStreamQuery",
    )


def test_busy_in_a_handler_is_reentrancy():
    text = "launch: called by a handler of the same device"
    assert type(errors.from_record(record(lib.REVOFF_EBUSY, text))) is ro.ReentrancyError


def test_also_what_python_calls_it():
    assert issubclass(ro.LaunchTimeout, TimeoutError)
    assert issubclass(ro.SignatureError, TypeError)
    assert issubclass(ro.OutOfMemoryError, MemoryError)
    assert issubclass(ro.PtxVersionError, ro.ImageError)
    assert issubclass(ro.ArchitectureError, ro.ImageError)


def test_check_passes_counts_on():
    assert errors.check(0) == 0 and errors.check(7) == 7
    with pytest.raises(ro.RevoffError):
        errors.check(lib.revoff_device_query(lib.REVOFF_PLATFORM_CPU, 9999, ffi.NULL) or -3)


def test_a_device_that_is_not_there():
    with pytest.raises(ro.NoDeviceError, match=r"cpu:15.*Devices here: .*cpu:0"):
        ro.Device("cpu:15")


def test_a_real_driver_error(faults):
    """A failing entry comes out with its number, its name and the entry."""
    with pytest.raises(ro.DriverError) as caught:
        # A combination that nothing else opens, so that its table can fail.
        assert faults("cuStreamCreate", 1, 999) == 0
        ro.Device("cpu", placement="copy", lock="mailbox", wait="patch")
    assert caught.value.code == 999
    assert caught.value.name == "CUDA_ERROR_UNKNOWN"
    assert caught.value.entry == "cuStreamCreate"
    assert "cuStreamCreate" in str(caught.value) and "CUDA_ERROR_UNKNOWN" in str(caught.value)
