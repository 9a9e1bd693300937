# SPDX-License-Identifier: Apache-2.0
"""The reverse functions of an image, and the handlers bound to them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._lib import ffi, lib
from .batch import BatchBound, check_most
from .errors import NotFoundError, SignatureError, UnsupportedError, check
from .futures import check_executor, submitting
from .handlers import Bound, check_arity, parse_dtypes, typed_arguments
from .output import PREFIX
from .signature import Signature, parse

_GOMP = 1


class Binding:
    """What an `Image` knows of its reverse functions; a part of it."""

    name: str
    _handle: Any

    def __init__(self) -> None:
        self.functions: dict[str, Signature | None] = {}
        # By index in the C image: what a bound handler needs to live.
        self._bound: dict[int, Any] = {}
        # One launch at a time: see docs/concepts.md, "Launch".
        self._turn = threading.Lock()
        self._retired: list[Any] = []

    def _open(self) -> Any:
        raise NotImplementedError

    def _list_functions(self) -> None:
        out = ffi.new("struct revoff_function *")
        for i in range(lib.revoff_image_function_count(self._handle)):
            check(lib.revoff_image_function(self._handle, i, out))
            self._add(out)

    def _add(self, function: Any) -> None:
        name = ffi.string(function.name).decode()
        if name.startswith(PREFIX):
            return  # pyrevoff's own: see output.py
        text = ffi.string(function.signature).decode()
        self.functions[name] = None if function.kind == _GOMP else parse(text)

    def function_name(self, index: int) -> str:
        """Name of a reverse function by its index in the C image."""
        out = ffi.new("struct revoff_function *")
        if lib.revoff_image_function(self._handle, index, out):
            return f"function {index}"
        return str(ffi.string(out.name).decode())

    def function_at(self, address: int) -> str:
        """Name of a reverse function by its device address, or the address."""
        out = ffi.new("struct revoff_function *")
        for i in range(lib.revoff_image_function_count(self._handle)):
            if not lib.revoff_image_function(self._handle, i, out) and out.fn == address:
                return str(ffi.string(out.name).decode())
        return f"0x{address:x}"

    def _index(self, name: str) -> int:
        index = -1
        if not isinstance(name, str):
            raise TypeError(f"a reverse function is named by a str, not {name!r}")
        if not name.startswith(PREFIX):
            index = lib.revoff_image_find(self._open(), name.encode())
        if index < 0:
            known = ", ".join(f"{n} {s or ''}".strip() for n, s in self.functions.items())
            raise NotFoundError(
                f"image {self.name} has no reverse function {name!r}; it has {known or 'none'}"
            )
        if name not in self.functions:
            out = ffi.new("struct revoff_function *")
            check(lib.revoff_image_function(self._handle, index, out))
            self._add(out)
        return int(index)

    def _bind(self, index: int, function: Any, user: Any, keep: Any) -> None:
        check(lib.revoff_image_bind(self._open(), index, function, user))
        self._keep(index, keep)

    def _keep(self, index: int, keep: Any) -> None:
        # A launch under way still calls the old one: it must live until then.
        if index in self._bound and self._turn.locked():
            self._retired.append(self._bound[index])
        self._bound[index] = keep

    def handler(
        self,
        name: str,
        function: Any = None,
        *,
        user: Any = None,
        dtypes: dict[int, Any] | None = None,
        batch: bool = False,
        most: int | None = None,
        copy: bool | None = None,
        executor: Any = None,
    ) -> Any:
        """Bind a host function to a reverse function of the image.

        Parameters
        ----------
        name : str
            As given to ``REVOFF_FUNCTION``.
        function : callable, or C function pointer
            Left out: use as a decorator. A C function of type
            ``revoff_handler`` is given as a cffi pointer or an int address.
        user : cffi pointer or int, optional
            Second argument of a C function.
        dtypes : dict of int to data-type, optional
            Better types for arguments (by index) that the image only knows as
            raw structs; same size.
        batch : bool
            True: `function` gets all calls that wait now, an array of each
            argument (shape (n,), n at least 1), and returns an array or one value
            for all. Any NumPy ufunc or SciPy function of arrays does.
        most : int, optional
            Calls in a batch at most, at least 32. Default: 32768.
        copy : bool, optional
            For batches of posts: False gives views of the ring, read-only, which
            are valid only until the handler returns. Default: False for ufuncs.
        executor : concurrent.futures.Executor, optional
            `function` runs there, and other calls are served meanwhile.

        Returns
        -------
        callable
            `function`, so that it can decorate.

        Raises
        ------
        NotFoundError
            The image has no such function; the text lists what it has.
        TypeError
            Not callable.
        SignatureError
            It cannot take the function's arguments; or, with `batch`, one of them
            is no value; or, with `executor`, an array would have to come back
            from another process.

        Notes
        -----
        Takes effect for launches that start later. The image keeps `function`
        alive. See docs/handlers.md for what it may do.
        """
        if function is None:
            return lambda f: self.handler(
                name,
                f,
                user=user,
                dtypes=dtypes,
                batch=batch,
                most=most,
                copy=copy,
                executor=executor,
            )
        index = self._index(name)
        signature = self.functions[name]
        if isinstance(function, (int, ffi.CData)):
            if dtypes is not None or batch or executor is not None:
                raise TypeError("dtypes, batch and executor are for Python handlers")
            # The first page is mapped nowhere: no number there is an address.
            if isinstance(function, int) and not (
                function == 0 or 4096 <= function < 1 << 8 * ffi.sizeof("void *")
            ):
                raise TypeError(f"handler of {name}: {function} is no address of a C function")
            pointer = ffi.cast("revoff_handler *", function)
            if not pointer:
                raise ValueError(f"handler of {name}: a NULL pointer; unhandle() unbinds")
            handle = ffi.NULL if user is None else ffi.cast("void *", user)
            self._bind(index, pointer, handle, (function, user))
            return function
        if not callable(function):
            raise TypeError(f"handler of {name}: {function!r} is not callable")
        if user is not None:
            raise TypeError("user is for C handlers")
        if not batch and (most is not None or copy is not None):
            raise TypeError("most and copy are for handlers with batch=True")
        if signature is None:
            if batch or executor is not None:
                raise TypeError(
                    f"handler of {name}: batch and executor are for functions with a signature, "
                    "not for libgomp's regions"
                )
            from .gomp import Region

            bound: Any = Region(name, function)
        else:
            bound = self._typed(name, signature, function, dtypes, batch, copy, executor)
        user_pointer = ffi.new_handle(bound)
        if batch:
            self._bind_batch(index, user_pointer, bound, check_most(most))
        else:
            self._bind(index, lib.revoff_py_handler, user_pointer, (user_pointer, bound))
        return function

    def _typed(
        self,
        name: str,
        signature: Signature,
        function: Any,
        dtypes: dict[int, Any] | None,
        batch: bool,
        copy: bool | None,
        executor: Any,
    ) -> Any:
        check_arity(function, signature, name)
        types = parse_dtypes(signature, dtypes, name)
        submit = None
        if executor is not None:
            check_executor(executor, name)
            back = [a.name for a in signature.arguments if a.map in ("from", "tofrom")]
            if back and not isinstance(executor, ThreadPoolExecutor):
                raise SignatureError(
                    f"{name} {signature}: what an executor's function writes to {back[0]} comes "
                    "back from threads of this process only: use a ThreadPoolExecutor, or return "
                    "a future whose callback fills the array"
                )
            submit = submitting(function, executor)
        if batch:
            arguments = typed_arguments(signature, types, f"{name} {signature}")
            return BatchBound(name, signature, function, arguments, copy, submit)
        return Bound(name, signature, submit or function, types)

    def _bind_batch(self, index: int, user: Any, bound: Any, most: int) -> None:
        code = lib.revoff_image_bind_batch(
            self._open(), index, lib.revoff_py_batch_handler, ffi.NULL, user, most
        )
        try:
            check(code)
        except UnsupportedError as error:
            raise SignatureError(str(error)) from None
        self._keep(index, (user, bound))

    def unhandle(self, name: str) -> None:
        """Unbind, for launches that start later.

        Raises
        ------
        NotFoundError
            The image has no such function.
        """
        index = self._index(name)
        check(lib.revoff_image_bind(self._open(), index, ffi.NULL, ffi.NULL))
        if index in self._bound:
            keep = self._bound.pop(index)
            if self._turn.locked():
                self._retired.append(keep)
