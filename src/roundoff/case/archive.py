"""Archives that are the same, byte for byte, whenever they are made of the same files."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping

__all__ = ["MANIFEST_NAME", "manifest_of", "zip_bytes"]

MANIFEST_NAME = "MANIFEST.json"
# The earliest time an archive can hold; when files were made is nobody's business.
_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX, _REGULAR_FILE = 3, 0o100644


def manifest_of(members: Mapping[str, bytes]) -> bytes:
    """Size and hash of each file, as JSON."""
    entries = {
        name: {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(members.items())
    }
    return (json.dumps(entries, indent=1, ensure_ascii=False) + "\n").encode()


def zip_bytes(members: Mapping[str, bytes], *, manifest: bool = True) -> bytes:
    """An archive of these files.

    Args:
        members: The files, by their names.
        manifest: Whether a list of them with their hashes is put in, too.
    """
    listed = {MANIFEST_NAME: manifest_of(members)} if manifest else {}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, content in sorted({**members, **listed}.items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, _UNIX
            info.external_attr = _REGULAR_FILE << 16
            archive.writestr(info, content)
    return out.getvalue()
