"""MUSAE's files in small copies, in the layouts of SNAP's archives and of plain folders."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path

# Six pages: an edge in both directions, a self-loop, and a vertex without edges.
EDGES = "id_1,id_2\n0,1\n1,2\n2,1\n3,3\n4,0\n"
FACEBOOK = (
    'id,facebook_id,page_name,page_type\n0,11,"The ""Voice"", of China",tvshow\n1,12,\u4e2d\u56fd,government\n'
    "2,13,ESET,company\n3,14,Bailey,politician\n4,15,Stockholm,company\n5,16,none,government\n"
)
GIT = "id,name,ml_target\n" + "".join(f"{v},user{v},{v % 2}\n" for v in range(6))
# Rows in another order than the vertices: the ids of the graph are new_id.
TWITCH = "id,days,mature,views,partner,new_id\n" + "".join(
    f"{37905227 + v},{v},{v in (0, 4)},{v * 9},False,{v}\n" for v in (5, 0, 3, 1, 4, 2)
)
FEATURES = json.dumps({"0": [2, 5, 5], "3": [0], "1": [7, 2], "5": [], "4": [3169]})

TARGETS = {"facebook": FACEBOOK, "git": GIT, "DE": TWITCH}
NAMES = {"musae-facebook": "facebook", "musae-git": "git", "musae-twitch-de": "DE"}
ARCHIVES = {"facebook": "facebook_large", "git": "git_web_ml", "DE": "twitch"}


def edges(which: str) -> str:
    return EDGES.replace("id_1,id_2", "from,to") if which == "DE" else EDGES


def write_plain(folder: Path, which: str, *, packed: bool = True, features: bool = True) -> None:
    """``edges.csv.gz``, ``target.csv.gz``, ``features.json.gz``, packed or not."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"edges.csv": edges(which), "target.csv": TARGETS[which], "features.json": FEATURES}
    for name, text in texts.items():
        if name != "features.json" or features:
            data = text.encode()
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(data, mtime=0) if packed else data)


def archive_members(which: str) -> dict[str, str]:
    """Member -> text of SNAP's archive; in ``twitch.zip`` the features of DE are not called so."""
    start = f"{ARCHIVES[which]}/{'DE/' if which == 'DE' else ''}musae_{which}"
    features = f"{start}.json" if which == "DE" else f"{start}_features.json"
    members = {f"{start}_edges.csv": edges(which), f"{start}_target.csv": TARGETS[which], features: FEATURES}
    if which == "DE":
        members["twitch/ENGB/musae_ENGB_edges.csv"] = "from,to\n0,1\n"
    return {**members, f"{ARCHIVES[which]}/README.txt": "Please cite."}


def archive(which: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as handle:
        for member, text in archive_members(which).items():
            handle.writestr(member, text)
    return buffer.getvalue()
