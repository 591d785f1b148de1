"""A Lua interpreter for tests: the library that Slurm's plug-in uses, without a program."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools

_MULTRET, _GLOBALS = -1, -10002


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return Lua 5.1, or None if it is not installed."""
    name = ctypes.util.find_library("lua5.1")
    if name is None:
        return None
    found = ctypes.CDLL(name)
    found.luaL_newstate.restype = ctypes.c_void_p
    found.lua_tolstring.restype = ctypes.c_char_p
    return found


def run(script: str) -> str:
    """Run a script in a new interpreter and return its result as text. Raises RuntimeError with Lua's message."""
    lua = library()
    assert lua is not None
    state = ctypes.c_void_p(lua.luaL_newstate())
    try:
        lua.luaL_openlibs(state)
        failed = lua.luaL_loadstring(state, script.encode()) or lua.lua_pcall(state, 0, 1, 0)
        text = (lua.lua_tolstring(state, -1, None) or b"").decode()
    finally:
        lua.lua_close(state)
    if failed:
        raise RuntimeError(text)
    return text
