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
# Functions whose code alone does not say what they do: their names, and how many there are of a name.
_names = weakref.WeakKeyDictionary()
_counts = {}


def name_of(function):
    """A name that no other function has which does something else.

    A function of a module, or a method of a class of one, has the same name in the next process: it is made of the
    module, the qualified name, and a digest of the code. Others (lambdas, functions inside functions, bound methods,
    objects that can be called) get a number, and a name for this process only.
    """
    qualified = getattr(function, "__qualname__", None)
    readable = f"{getattr(function, '__module__', None)}.{qualified or type(function).__qualname__}"
    if isinstance(function, types.BuiltinFunctionType) and isinstance(function.__self__, types.ModuleType):
        return readable
    if not isinstance(function, types.FunctionType):
        return _of_this_process(readable)
    is_durable = "<" not in qualified
    if is_durable and not (function.__closure__ or function.__defaults__ or function.__kwdefaults__):
        return f"{readable}#{_digest(function.__code__)}"
    with _lock:
        if function not in _names:
            _names[function] = _numbered(readable, function) if is_durable else _of_this_process(readable)
        return _names[function]


def _of_this_process(readable):
    return f"{readable}#{_PROCESS}.{next(_numbers)}"


def _numbered(readable, function):
    """The first function of a name and a code has the same name in the next process."""
    name = f"{readable}#{_digest(function.__code__)}"
    count = _counts[name] = _counts.get(name, 0) + 1
    return name if count == 1 else f"{name}.{count}"


def _digest(code):
    digest = hashlib.blake2b(digest_size=8)
    _add(digest, code)
    return digest.hexdigest()


def _add(digest, constant):
    """Adds a constant of a code, and the code itself. `marshal` and `hash` differ from process to process."""
    digest.update(type(constant).__name__.encode())
    if isinstance(constant, types.CodeType):
        digest.update(constant.co_code)
        digest.update(repr((constant.co_names, constant.co_varnames, constant.co_freevars)).encode())
        _add(digest, constant.co_consts)
    elif isinstance(constant, tuple):
        digest.update(str(len(constant)).encode())
        for part in constant:
            _add(digest, part)
    elif isinstance(constant, frozenset):
        digest.update(repr(sorted(map(repr, constant))).encode())
    else:
        digest.update(repr(constant).encode())
    digest.update(b"\0")
