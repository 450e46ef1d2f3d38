"""Names of generated kernels in GDB: `source tools/gdb_quire.py`, in a GDB with Python.

The program must run with QUIRE_PERF=map (`set environment QUIRE_PERF map`), whose file is read. Backtraces
then show kernels by name and go on to their callers, and there are two commands:

    quire-kernels [TEXT]     kernels that were generated so far, or those whose names contain TEXT
    quire-break TEXT         a breakpoint at the beginning of each of them
"""

import bisect
import re

import gdb
from gdb.FrameDecorator import FrameDecorator
from gdb.unwinder import Unwinder

SAVED = "rbx rbp r12 r13 r14 r15".split()


class Kernels:
    """What the map of the program says, read again when it grew."""

    def __init__(self):
        self.pid, self.size, self.rows = 0, -1, []

    def read(self):
        """Sorted (address, end, name)."""
        pid = gdb.selected_inferior().pid
        try:
            with open(f"/tmp/perf-{pid}.map") as file:  # the name that perf looks for
                text = file.read()
        except OSError:
            text = ""
        if (pid, len(text)) != (self.pid, self.size):
            rows = (line.split(" ", 2) for line in text.splitlines())
            rows = ((int(at, 16), int(at, 16) + int(size, 16), name) for at, size, name in rows)
            self.rows = sorted({at: (at, end, name) for at, end, name in rows}.values())
            self.pid, self.size = pid, len(text)
        return self.rows

    def at(self, address):
        """(address, end, name) of the kernel that has this address, or None."""
        rows = self.read()
        i = bisect.bisect_right(rows, (address, float("inf"), "")) - 1
        return rows[i] if i >= 0 and address < rows[i][1] else None

    def named(self, text):
        return [row for row in self.read() if text in row[2]]


KERNELS = Kernels()


class KernelFrame(FrameDecorator):
    def __init__(self, frame, begin, name):
        super().__init__(frame)
        self.begin, self.name = begin, name

    def function(self):
        return f"{self.name}+{self.inferior_frame().pc() - self.begin:#x}"


class KernelNames:
    """A frame filter."""

    def __init__(self):
        self.name, self.priority, self.enabled = "quire", 100, True

    def filter(self, frames):
        for frame in frames:
            kernel = KERNELS.at(frame.inferior_frame().pc())
            yield KernelFrame(frame, kernel[0], kernel[2]) if kernel else frame


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class KernelUnwinder(Unwinder):
    """Kernels push registers and move rsp at their beginning, and undo it at their one end: what has been
    pushed at an instruction is what those before it push."""

    def __init__(self):
        super().__init__("quire")

    def __call__(self, pending):
        pc = int(pending.read_register("rip"))
        kernel = KERNELS.at(pc)
        if kernel is None:
            return None
        depth, places = self.frame_at(pending.architecture(), kernel[0], pc)
        sp = pending.read_register("rsp")
        base = int(sp) + depth  # where the return address is
        unwinding = pending.create_unwind_info(FrameId(sp.cast(sp.type), pending.read_register("rip")))
        word = gdb.lookup_type("unsigned long")

        def word_at(address):
            return gdb.Value(address).cast(word.pointer()).dereference()

        for name in SAVED:
            if name in places:
                unwinding.add_saved_register(name, word_at(base - places[name]))
            else:
                unwinding.add_saved_register(name, pending.read_register(name))
        unwinding.add_saved_register("rip", word_at(base))
        unwinding.add_saved_register("rsp", gdb.Value(base + 8).cast(word))
        return unwinding

    @staticmethod
    def frame_at(architecture, begin, pc):
        """Bytes pushed when pc is reached, and how far below the return address each register is."""
        depth, places = 0, {}
        instructions = architecture.disassemble(begin, pc) if pc > begin else []
        for line in instructions:
            if line["addr"] >= pc:
                break
            text = line["asm"].replace("$", "").replace("%", "")
            if found := re.match(r"push +(\w+)", text):
                depth += 8
                places[found[1]] = depth
            elif found := re.match(r"pop +(\w+)", text):
                depth -= 8
                places.pop(found[1], None)
            elif found := re.match(r"(sub|add) +(?:(0x[0-9a-f]+|\d+),rsp|rsp,(0x[0-9a-f]+|\d+))$", text):
                amount = int(found[2] or found[3], 0)
                depth += amount if found[1] == "sub" else -amount
        return depth, places


class ListKernels(gdb.Command):
    """quire-kernels [TEXT]: kernels that were generated so far, those whose names contain TEXT."""

    def __init__(self):
        super().__init__("quire-kernels", gdb.COMMAND_STATUS)

    def invoke(self, text, _):
        for begin, end, name in KERNELS.named(text):
            print(f"{begin:#x} {end - begin:6} {name}")


class BreakAtKernels(gdb.Command):
    """quire-break TEXT: a breakpoint at the beginning of each kernel whose name contains TEXT."""

    def __init__(self):
        super().__init__("quire-break", gdb.COMMAND_BREAKPOINTS)

    def invoke(self, text, _):
        found = KERNELS.named(text)
        if not found:
            raise gdb.GdbError(
                f"no kernel's name contains {text!r}: is QUIRE_PERF=map set, and is there a plan?"
            )
        for begin, _, name in found:
            breakpoint_ = gdb.Breakpoint(f"*{begin:#x}")
            print(f"Breakpoint {breakpoint_.number} is {name}")


gdb.frame_filters["quire"] = KernelNames()
gdb.unwinder.register_unwinder(None, KernelUnwinder(), replace=True)
ListKernels()
BreakAtKernels()
