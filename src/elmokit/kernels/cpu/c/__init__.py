"""The recurrence and the token encoder in C, where the machine has a compiler: single calls for int8 and floats.

What the libraries inside torch multiply, these do too, without a call for every few numbers in between; see lstm.c and
tokens.c. `c_library()` is None where there is no such thing, and callers do without.
"""

from elmokit.kernels.cpu.c.library import c_hindrance, c_library
from elmokit.kernels.cpu.c.lstm import NativeLstm
from elmokit.kernels.cpu.c.tokens import Linear, NativeTokens

__all__ = ["Linear", "NativeLstm", "NativeTokens", "c_hindrance", "c_library"]
