"""The recurrence and the token encoder in C, built with the package: single calls for int8 and floats.

See lstm.c and tokens.c. `c_library()` is None if C cannot run here; callers then use torch's libraries.
"""

from elmokit.kernels.cpu.c._library import CLibrary, Compiled, c_library, compiled
from elmokit.kernels.cpu.c._lstm import CompiledLstm
from elmokit.kernels.cpu.c._tokens import CompiledTokens, Linear

__all__ = ["CLibrary", "Compiled", "CompiledLstm", "CompiledTokens", "Linear", "c_library", "compiled"]
