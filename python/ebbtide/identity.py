"""What tells functions apart whose results are in one cache."""

import hashlib
import itertools
import secrets
import threading
import types
import weakref

# In the name of a function that only this process knows. Another process, with the same memory file, has another one.
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count(1)
_lock = threading.Lock()
# The names of functions that only this process knows.
_names = weakref.WeakKeyDictionary()

# What a code does, without the lines that it stands on.
_CODE = (
    "co_code",
    "co_consts",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_flags",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_exceptiontable",
)


class _Unstable(Exception):
    """A part of a function has no digest that another process would compute, too."""


def name_of(function):
    """A name that no other function has which does something else.

    A function of a module, or a method of a class of one, has the same name in the next process: it is made of the
    module, the qualified name, and a digest of the code, the defaults, the variables that it encloses and the function
    that it wraps. A function for which there is no such digest has a name for this process only: a default or an
    enclosed variable that is no constant, function, class or module. So have lambdas, functions inside functions,
    bound methods, and objects that can be called.
    """
    qualified = getattr(function, "__qualname__", None)
    readable = f"{getattr(function, '__module__', None)}.{qualified or type(function).__qualname__}"
    if isinstance(function, types.BuiltinFunctionType) and isinstance(function.__self__, types.ModuleType):
        return readable
    if not isinstance(function, types.FunctionType):
        return _of_this_process(readable)
    if _is_of_module(function):
        try:
            return f"{readable}#{_Digest().of(function)}"
        except _Unstable:
            pass
    with _lock:
        if function not in _names:
            _names[function] = _of_this_process(readable)
        return _names[function]


def _of_this_process(readable):
    return f"{readable}#{_PROCESS}.{next(_numbers)}"


def _is_of_module(named):
    """Whether its qualified name leads to it from its module: nothing in it is a lambda or local."""
    return "<" not in named.__qualname__


class _Digest:
    """Hashes a function by its parts. `marshal` and `hash` differ from process to process."""

    def __init__(self):
        # Functions under way, by number: a function may enclose itself.
        self.functions = {}

    def of(self, part):
        digest = hashlib.blake2b(digest_size=8)
        for piece in self.pieces(part):
            digest.update(len(piece).to_bytes(8, "little") + piece)
        return digest.hexdigest()

    def pieces(self, part):
        """The bytes of a part, in pieces; the first one is its type. Types are exact: a subclass may hold more."""
        kind = type(part)
        yield kind.__name__.encode()
        if part is None or part is Ellipsis:
            return
        if kind in (bool, float, complex, str):
            yield repr(part).encode()
        elif kind is int:
            yield hex(part).encode()
        elif kind is bytes:
            yield part
        elif kind is tuple:
            yield from self.all(part)
        elif kind is slice:
            yield from self.all((part.start, part.stop, part.step))
        elif kind is frozenset:
            yield repr(sorted(self.of(member) for member in part)).encode()
        elif kind is types.CodeType:
            yield from self.all(getattr(part, name) for name in _CODE)
        elif kind is types.FunctionType:
            yield from self.of_function(part)
        elif kind is types.ModuleType:
            yield part.__name__.encode()
        elif kind is types.BuiltinFunctionType and isinstance(part.__self__, types.ModuleType):
            yield f"{part.__module__}.{part.__qualname__}".encode()
        elif isinstance(part, type) and _is_of_module(part):
            yield f"{part.__module__}.{part.__qualname__}".encode()
        else:
            raise _Unstable

    def all(self, parts):
        for part in parts:
            yield self.of(part).encode()

    def of_function(self, function):
        if function in self.functions:
            yield str(self.functions[function]).encode()
            return
        self.functions[function] = len(self.functions)
        yield f"{function.__module__}.{function.__qualname__}".encode()
        kwdefaults = tuple(sorted((function.__kwdefaults__ or {}).items()))
        yield from self.all((function.__code__, function.__defaults__, kwdefaults))
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            # The class of a method, which its name has: it is not there yet when the method is decorated.
            if variable != "__class__":
                yield self.of(_content(cell)).encode()
        yield self.of(getattr(function, "__wrapped__", None)).encode()


def _content(cell):
    try:
        return cell.cell_contents
    except ValueError:
        raise _Unstable from None
