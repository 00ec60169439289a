"""Which modules are imported for a program, by what its import statements name."""

import asyncio
import selectors
import sys

import pytest

from d3s.sandbox import preload


@pytest.fixture(autouse=True)
def kept_event_loops(monkeypatch):
    """import_named changes the event loops of its process, here for one test."""
    loop = asyncio.selector_events.BaseSelectorEventLoop
    for place, name in ((selectors, "DefaultSelector"), (loop, "_make_self_pipe"), (loop, "_close_self_pipe")):
        monkeypatch.setattr(place, name, getattr(place, name))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import wave as w, sched ,bisect as b", "wave sched bisect"), ("import numpy, d3s, setuptools", ""),
        ("def f():\n    from sched import scheduler", "sched"), ("from __future__ import annotations", ""),
        ("import antigravity, idlelib.idle, turtledemo.clock, test.support, lib2to3.tests, unittest.test.testmock", ""),
        ("from sqlite3.test import dbapi\nfrom ctypes import test", "ctypes"), ("import json.__main__, _thread", ""),
        ("from sched import (\n    scheduler as s, time,\n)", "sched"),
        ("import sched, \\\n  wave as w\nx = 1, bisect", "sched wave"), ("important = 'from here'", ""),
    ],
)  # fmt: skip
def test_named_modules_are_imported(monkeypatch, text, names):
    imported: list[str] = []
    monkeypatch.setattr(preload.importlib, "import_module", imported.append)
    for name in ("wave", "sched"):
        sys.modules.pop(name, None)
    preload.import_named(text)
    assert list(dict.fromkeys(imported)) == names.split()


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("from xml.dom import pulldom", "xml.dom.pulldom"), ("import xml.dom.minidom", "xml.dom.expatbuilder"),
        ("import os.path, sched", "sched"), ("import email", "email.parser"),
        ("from concurrent import (\n    futures, nothing\n)", "concurrent.futures.thread"),
        ("x.encode('shift-jis')", "encodings.shift_jis"),
    ],
)  # fmt: skip
def test_submodules_are_imported(monkeypatch, text, module):
    monkeypatch.delitem(sys.modules, module, raising=False)
    preload.import_named(text)
    assert module in sys.modules
