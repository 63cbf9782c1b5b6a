"""An interpreter of pickle that executes nothing.

It walks the opcodes of protocols 0 to 5 (PEP 307, PEP 3154, PEP 574; `pickletools` describes
each) and builds plain values and the records of `pickle_records`. The module `pickle` is not
used. Opcodes that can only serve to run code, and names outside the allow-list, are refused.

Work and memory are bounded by the length of the stretch that is read and by `MAX_OPCODES`: no
length is believed before that many bytes are there, no value is copied, keys of dictionaries
are flat, and nothing recurses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar, cast

from ortist.checkpoints.pickle_records import (
    Global,
    Malformed,
    Placeholder,
    Refused,
    Storage,
    call,
    find_global,
    put,
    storage,
)
from ortist.checkpoints.raw_file import Window
from ortist.checkpoints.texts import shortened

MAX_OPCODES = 4_000_000
_MAX_LINE = 1000
_MAX_LONG = 255  # bytes of an integer; torch's own magic number takes ten

T = TypeVar("T")


def unpickle(window: Window, storages: list[Storage] | None = None) -> object:
    """The value that the pickle at the window's position stands for.

    The window is left behind the pickle's last byte.

    Args:
        window: the stretch of the file to read from.
        storages: takes every storage the pickle speaks of, also those of values that are not
            kept; None where it may not speak of any.

    Raises:
        Malformed: no pickle, cut short, or not one that PyTorch writes.
        Refused: it names a global, or asks for an operation, outside of what weights need.
    """
    try:
        return _Machine(window, storages).run()
    except EOFError:
        raise Malformed("it ends within a pickle") from None


class _Machine:
    def __init__(self, window: Window, storages: list[Storage] | None) -> None:
        self._window = window
        self._storages = storages
        self._stack: list[object] = []
        self._marks: list[list[object]] = []
        self._memo: dict[int, object] = {}

    def run(self) -> object:
        for _ in range(MAX_OPCODES):
            code = self._window.read(1)
            if code == b".":
                if len(self._stack) != 1 or self._marks:
                    raise Malformed("a pickle that leaves more or less than one value")
                return self._stack[0]
            handler = _HANDLERS.get(code)
            if handler is None:
                if code in _REFUSED:
                    raise Refused(f"the opcode {_REFUSED[code]}")
                raise Malformed(f"the byte {code!r} where an opcode should be")
            handler(self)
        raise Malformed(f"a pickle of more than {MAX_OPCODES} opcodes")

    # The stack.

    def push(self, value: object) -> None:
        self._stack.append(value)

    def pop(self) -> object:
        if not self._stack:
            raise Malformed("a pickle that takes more values than it has")
        return self._stack.pop()

    def top(self) -> object:
        if not self._stack:
            raise Malformed("a pickle that takes more values than it has")
        return self._stack[-1]

    def mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def pop_mark(self) -> list[object]:
        if not self._marks:
            raise Malformed("a pickle that looks for a mark it has not set")
        values, self._stack = self._stack, self._marks.pop()
        return values

    def pop_or_mark(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self.pop_mark()

    def drop_mark(self) -> None:
        self.pop_mark()

    def duplicate(self) -> None:
        self.push(self.top())

    # Arguments of opcodes.

    def number(self, layout: str) -> int:
        return struct.unpack(layout, self._window.read(struct.calcsize(layout)))[0]

    def sized(self, layout: str) -> bytes:
        return self._window.read(self.number(layout))

    def line(self) -> str:
        try:
            return self._window.line(_MAX_LINE).decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("a line that is no UTF-8") from None

    def text(self, layout: str) -> None:
        try:
            self.push(self.sized(layout).decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            raise Malformed("a text that is no UTF-8") from None

    def python2_text(self, layout: str) -> None:
        """Python 2's `str`: names of tensors, or bytes."""
        data = self.sized(layout)
        try:
            self.push(data.decode("utf-8"))
        except UnicodeDecodeError:
            self.push(data)

    def decimal(self) -> None:
        """Protocol 0's integers and truth values."""
        text = self.line()
        if text in {"00", "01"}:
            self.push(text == "01")
        else:
            self.push(_parsed(text.removesuffix("L"), int))

    def fraction(self) -> None:
        self.push(_parsed(self.line(), float))

    def binary_fraction(self) -> None:
        self.push(struct.unpack(">d", self._window.read(8))[0])

    def long(self, layout: str) -> None:
        length = self.number(layout)
        if not 0 <= length <= _MAX_LONG:
            raise Malformed(f"an integer of {length} bytes")
        self.push(int.from_bytes(self._window.read(length), "little", signed=True))

    def frame(self) -> None:
        """A frame only announces how many bytes follow; they are read as they come."""
        self.number("<Q")

    def protocol(self) -> None:
        if (version := self.number("<B")) > 5:
            raise Malformed(f"pickle protocol {version}")

    # The memo.

    def remember(self, index: int) -> None:
        if index < 0:
            raise Malformed("a negative place in the memo")
        self._memo[index] = self.top()

    def memoize(self) -> None:
        self.remember(len(self._memo))

    def recall(self, index: int) -> None:
        if index not in self._memo:
            raise Malformed("a pickle that recalls what it has not stored")
        self.push(self._memo[index])

    # Containers. A value is changed only where it is one that the pickle itself made.

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def append(self, values: list[object]) -> None:
        target = self.top()
        if isinstance(target, list):
            cast("list[object]", target).extend(values)
        elif not isinstance(target, Placeholder):  # what subclasses of list hold is not kept
            raise Malformed(f"an item is added to {shortened(target)}")

    def append_one(self) -> None:
        value = self.pop()
        self.append([value])

    def set_items(self, values: list[object]) -> None:
        if len(values) % 2:
            raise Malformed("a key without a value")
        target = self.top()
        if isinstance(target, dict):
            entries = cast("dict[object, object]", target)
            for key, value in zip(values[::2], values[1::2], strict=True):
                put(entries, key, value)
        elif not isinstance(target, Placeholder):
            raise Malformed(f"an entry is set in {shortened(target)}")

    def set_one(self) -> None:
        value = self.pop()
        key = self.pop()
        self.set_items([key, value])

    def dict_of_mark(self) -> None:
        values = self.pop_mark()
        self.push({})
        self.set_items(values)

    def add_to_set(self) -> None:
        self.pop_mark()
        if not isinstance(self.top(), Placeholder):
            raise Malformed(f"an item is added to {shortened(self.top())}")

    def frozen_set(self) -> None:
        self.pop_mark()
        self.push(Placeholder("frozenset"))

    # Names, and what is done with them.

    def global_lines(self) -> object:
        return find_global(self.line(), self.line())

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(module, str) and isinstance(name, str)):
            raise Malformed("a global whose name is no text")
        self.push(find_global(module, name))

    def reduce(self) -> None:
        arguments = self.pop()
        self.push(call(self.pop(), arguments))

    def new(self, *, keywords: bool) -> None:
        # Compared by type and length: `==` would follow what the file nests.
        if keywords and not (isinstance(given := self.pop(), dict) and not given):
            raise Refused("keyword arguments of a call")
        arguments = self.pop()
        self.push(_made(self.pop(), arguments))

    def instance(self) -> None:
        made = self.global_lines()
        self.push(_made(made, tuple(self.pop_mark())))

    def object_of_mark(self) -> None:
        values = self.pop_mark()
        if not values:
            raise Malformed("an object without a class")
        self.push(_made(values[0], tuple(values[1:])))

    def build(self) -> None:
        """Attributes of an object. None is kept: a state dict's are the versions of its parts."""
        self.pop()
        if not isinstance(self.top(), dict | Placeholder):
            raise Refused(f"a change of {shortened(self.top())}")

    def persistent(self) -> None:
        identifier = self.pop()
        if self._storages is None:
            raise Refused("a persistent id")
        found = storage(identifier)
        self._storages.append(found)
        self.push(found)


def _made(kind: object, arguments: object) -> object:
    """An instance of a class, as NEWOBJ and its like make it; functions are no classes."""
    if isinstance(kind, Placeholder) or kind == Global("collections.OrderedDict"):
        return call(kind, arguments)
    raise Refused(f"an instance of {kind.name if isinstance(kind, Global) else shortened(kind)}")


def _parsed(text: str, kind: Callable[[str], T]) -> T:
    try:
        return kind(text)
    except ValueError:
        raise Malformed(f"the number {shortened(text)}") from None


_REFUSED: Final = {
    b"\x82": "EXT1",
    b"\x83": "EXT2",
    b"\x84": "EXT4",
    b"P": "PERSID",
    b"S": "STRING",
    b"V": "UNICODE",
    b"\x97": "NEXT_BUFFER",
    b"\x98": "READONLY_BUFFER",
}

_Handler = Callable[[_Machine], None]
_HANDLERS: Final[dict[bytes, _Handler]] = {
    b"\x80": _Machine.protocol,
    b"\x95": _Machine.frame,
    # Values.
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": _Machine.decimal,
    b"L": _Machine.decimal,
    b"J": lambda m: m.push(m.number("<i")),
    b"K": lambda m: m.push(m.number("<B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"\x8a": lambda m: m.long("<B"),
    b"\x8b": lambda m: m.long("<i"),
    b"F": _Machine.fraction,
    b"G": _Machine.binary_fraction,
    b"X": lambda m: m.text("<I"),
    b"\x8c": lambda m: m.text("<B"),
    b"\x8d": lambda m: m.text("<Q"),
    b"T": lambda m: m.python2_text("<i"),
    b"U": lambda m: m.python2_text("<B"),
    b"B": lambda m: m.push(m.sized("<I")),
    b"C": lambda m: m.push(m.sized("<B")),
    b"\x8e": lambda m: m.push(m.sized("<Q")),
    b"\x96": lambda m: m.push(m.sized("<Q")),
    # The stack and the memo.
    b"(": _Machine.mark,
    b"0": _Machine.pop_or_mark,
    b"1": _Machine.drop_mark,
    b"2": _Machine.duplicate,
    b"p": lambda m: m.remember(_parsed(m.line(), int)),
    b"q": lambda m: m.remember(m.number("<B")),
    b"r": lambda m: m.remember(m.number("<I")),
    b"\x94": _Machine.memoize,
    b"g": lambda m: m.recall(_parsed(m.line(), int)),
    b"h": lambda m: m.recall(m.number("<B")),
    b"j": lambda m: m.recall(m.number("<I")),
    # Containers.
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.pop_mark())),
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"]": lambda m: m.push([]),
    b"l": lambda m: m.push(m.pop_mark()),
    b"a": _Machine.append_one,
    b"e": lambda m: m.append(m.pop_mark()),
    b"}": lambda m: m.push({}),
    b"d": _Machine.dict_of_mark,
    b"s": _Machine.set_one,
    b"u": lambda m: m.set_items(m.pop_mark()),
    b"\x8f": lambda m: m.push(Placeholder("set")),
    b"\x90": _Machine.add_to_set,
    b"\x91": _Machine.frozen_set,
    # Names and calls.
    b"c": lambda m: m.push(m.global_lines()),
    b"\x93": _Machine.stack_global,
    b"R": _Machine.reduce,
    b"\x81": lambda m: m.new(keywords=False),
    b"\x92": lambda m: m.new(keywords=True),
    b"i": _Machine.instance,
    b"o": _Machine.object_of_mark,
    b"b": _Machine.build,
    b"Q": _Machine.persistent,
}
