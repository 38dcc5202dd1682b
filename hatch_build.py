"""The build hook of the package: its C is compiled when a wheel is made, or an editable install.

Without a C compiler the package is made without the library, and runs in torch.
"""

import importlib.util
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "native"


class CLibraryHook(BuildHookInterface):
    """Puts the library into a wheel, or, for an editable install, into the source tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        home = Path(self.root, "src/elmokit", FOLDER)
        spec = importlib.util.spec_from_file_location("elmokit_c_build", home / "build.py")
        assert spec is not None
        assert spec.loader is not None
        compile_c = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compile_c)
        try:
            if version == "editable":
                compile_c.build()
                return
            self.passing = tempfile.TemporaryDirectory()
            made = Path(self.passing.name, compile_c.NAME)
            held = compile_c.build(made)
        except compile_c.BuildError as error:
            self.app.display_warning(f"elmokit runs without C, in torch: {error}")
            return
        self.app.display_info(f"C library with {', '.join(held)}")
        build_data["force_include"][str(made)] = f"elmokit/{FOLDER}/{made.name}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "passing"):
            self.passing.cleanup()
