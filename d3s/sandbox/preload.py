"""Import the standard library before a sandboxed process loses the right to open files."""

import contextlib
import importlib
import random
import re
import selectors
import sys
import time
from collections.abc import Iterable
from encodings.aliases import aliases

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
# Modules that act when they are imported, and the library's tests wherever they are.
DENIED = {"antigravity", "idlelib", "site", "turtledemo"}
TESTS = re.compile(r"(?:idle_)?tests?(?:_\w*)?")
# What a module imports at first use.
LATER = {
    "argparse": "shutil",
    "concurrent": "concurrent.futures.thread",
    "email": "email.parser",
    "xml.dom.minidom": "xml.dom.expatbuilder",
    "xml.sax": "xml.sax.expatreader",
    "zipfile": "encodings.cp437",
}
NAME = r"[A-Za-z_][\w.]*(?:[ \t]+as[ \t]+\w+)?"
COMMA = r"[ \t]*,[\s\\]*"  # in brackets or after a backslash, names go on in the next line
IMPORT = re.compile(rf"\bimport[ \t]+({NAME}(?:{COMMA}{NAME})*)")
FROM = re.compile(
    rf"\bfrom[ \t]+([A-Za-z_][\w.]*)[ \t]+import[ \t]*(?:\([ \t]*\n?|\\\n)?[ \t]*({NAME}(?:{COMMA}{NAME})*)?"
)
CODEC = re.compile(r"""['"]([A-Za-z][\w-]{1,20})['"]""")


def import_common() -> None:
    """Fill the fork server with what most programs need, and with what the library reads at first use."""
    for name in COMMON.split():
        importlib.import_module(name)
    time.localtime()  # reads the time zone
    random.seed(0)


def import_named(text: str) -> None:
    """Import the standard modules that import statements in a text may name. Runs no part of the text."""
    names = _first_words(match[1] for match in IMPORT.finditer(text))
    for package, members in FROM.findall(text):
        names.append(package)
        names += [f"{package}.{member}" for member in _first_words([members])]
    packages = {name.partition(".")[0] for name in names}
    names += [later for name, later in LATER.items() if name in packages or name in names]
    if "code(" in text:  # of str.encode, bytes.decode
        keys = {key.lower().replace("-", "_") for key in CODEC.findall(text)}
        names += [f"encodings.{codec}" for alias, codec in aliases.items() if alias in keys or codec in keys]
    for name in dict.fromkeys(names):
        parts = name.split(".")
        acting = any(part.startswith("_") or TESTS.fullmatch(part) for part in parts)  # X.__main__ would act
        if parts[0] in sys.stdlib_module_names and parts[0] not in DENIED and not acting:
            _import_as_far_as_possible(parts)
    if "asyncio" in sys.modules:
        _free_loops_of_sockets()


def _free_loops_of_sockets() -> None:
    """Let event loops run tasks and timers without epoll and the pair of sockets by which threads wake them."""
    loop = sys.modules["asyncio"].selector_events.BaseSelectorEventLoop
    loop._make_self_pipe = loop._close_self_pipe = lambda self: setattr(self, "_csock", None)
    selectors.DefaultSelector = selectors.SelectSelector


def _first_words(lists: Iterable[str]) -> list[str]:
    """Return the names in lists such as "a, b as c"."""
    return [part.split()[0] for names in lists for part in names.replace("\\", " ").split(",") if part.strip()]


def _import_as_far_as_possible(parts: list[str]) -> None:
    """Import a package, then its submodule; the last part of a name may be a function."""
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
        if not hasattr(sys.modules.get(name), "__path__"):
            return
