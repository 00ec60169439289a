"""Import the standard library before a sandboxed process loses the right to open files."""

import contextlib
import importlib
import random
import re
import sys
import time

# Common modules, imported once by the fork server. A program's further imports are found in its text.
COMMON = """
__future__ abc array ast base64 binascii bisect calendar cmath codecs collections collections.abc contextlib copy
copyreg dataclasses datetime _strptime decimal difflib enum fractions functools gc hashlib heapq inspect io itertools
json keyword linecache math numbers operator os os.path pathlib pprint queue random re reprlib select signal socket
statistics string struct sys textwrap threading time traceback types typing unicodedata warnings weakref zlib
encodings.ascii encodings.base64_codec encodings.cp1252 encodings.hex_codec encodings.latin_1 encodings.punycode
encodings.raw_unicode_escape encodings.rot_13 encodings.unicode_escape encodings.utf_16 encodings.utf_16_be
encodings.utf_16_le encodings.utf_32 encodings.utf_7 encodings.utf_8_sig
"""
# Modules that act when they are imported, or have no use here.
DENIED = {"antigravity", "ensurepip", "idlelib", "lib2to3", "pip", "site", "test", "this", "tkinter", "turtle"}
DENIED |= {"turtledemo", "venv", "distutils", "pydoc_data", "webbrowser"}
NAMES = r"[A-Za-z_][\w.]*"
IMPORT = re.compile(rf"\bimport[ \t]+({NAMES}(?:[ \t]+as[ \t]+\w+)?(?:[ \t]*,[ \t]*{NAMES}(?:[ \t]+as[ \t]+\w+)?)*)")
FROM = re.compile(rf"\bfrom[ \t]+({NAMES})[ \t]+import[ \t]*\(?[ \t]*(\w+(?:[ \t]*,[ \t]*\w+)*)?")


def import_common() -> None:
    """Fill the fork server with what most programs need, and with what the library reads at first use."""
    for name in COMMON.split():
        importlib.import_module(name)
    time.localtime()  # reads the time zone
    random.seed(0)


def import_named(text: str) -> None:
    """Import the standard modules that import statements in a text may name. Runs no part of the text."""
    names = [part.split()[0] for match in IMPORT.finditer(text) for part in match[1].split(",")]
    for package, members in FROM.findall(text):
        names.append(package)
        names += [f"{package}.{member.strip()}" for member in members.split(",")]
    for name in dict.fromkeys(names):
        parts = name.split(".")
        private = any(part.startswith("_") for part in parts)  # X.__main__ would act
        if parts[0] in sys.stdlib_module_names and parts[0] not in DENIED and not private:
            _import_as_far_as_possible(parts)


def _import_as_far_as_possible(parts: list[str]) -> None:
    """Import a package, then its submodule; the last part of a name may be a function."""
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
        if not hasattr(sys.modules.get(name), "__path__"):
            return
