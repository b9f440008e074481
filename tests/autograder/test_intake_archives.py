"""Archives that students send: what comes out, and that nothing else happens."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from autograder.course import Course
from autograder.intake import collect
from autograder.intake.archives import BadArchive, Room, unpack
from tests.autograder.intake_tools import TOY, Answered, zipped


def out_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


OUTSIDE = ["../../evil.txt", "/etc/evil.txt", "..\\..\\evil.txt", "C:\\evil.txt", "a/../../evil.txt", "\\\\host\\evil"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_comes_out_outside(tmp_path: Path, name: str) -> None:
    archive = zipped(tmp_path / "a.zip", {name: "x", "good.ipynb": "{}"})
    before = out_of(tmp_path)
    (note,) = unpack(archive, tmp_path / "new" / "here")
    assert "outside" in note
    assert out_of(tmp_path) - before == {"new/here/good.ipynb"}


def test_links_and_devices_are_set_aside(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        link = zipfile.ZipInfo("link.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    assert "a link or a device" in unpack(tmp_path / "a.zip", tmp_path / "1")[0]
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        kinds = {"s": tarfile.SYMTYPE, "h": tarfile.LNKTYPE, "c": tarfile.CHRTYPE, "f": tarfile.FIFOTYPE}
        for name, kind in kinds.items():
            entry = tarfile.TarInfo(f"{name}.ipynb")
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
        entry = tarfile.TarInfo("fine.ipynb")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))
    assert "s.ipynb, h.ipynb, c.ipynb, f.ipynb set aside" in unpack(tmp_path / "a.tar.gz", tmp_path / "2")[0]
    assert out_of(tmp_path / "1") | out_of(tmp_path / "2") == {"fine.ipynb"}


def test_a_bomb_costs_itself_alone(tmp_path: Path) -> None:
    bomb = {"bomb.bin": b"\0" * 3_000_000, "lab.ipynb": "{}", "small.txt": "x"}
    notes = unpack(zipped(tmp_path / "a.zip", bomb), tmp_path / "1", Room(file_bytes=1_000_000))
    assert notes == ["a.zip: bomb.bin set aside: it unpacks to more than 0.001 GB"]
    assert out_of(tmp_path / "1") == {"lab.ipynb", "small.txt"}
    many = {f"{i}.bin": b"\0" * 400_000 for i in range(20)} | {"lab.ipynb": "{}"}
    notes = unpack(zipped(tmp_path / "b.zip", many), tmp_path / "2", Room(bytes=1_000_000))
    assert "and 13 more set aside: the archive unpacks to more than 0.001 GB" in notes[0]
    assert "lab.ipynb" in out_of(tmp_path / "2")
    assert sum(path.stat().st_size for path in (tmp_path / "2").rglob("*.bin")) <= 1_000_000


def test_a_zip_that_lies_about_its_sizes(tmp_path: Path) -> None:
    raw = bytearray(zipped(tmp_path / "a.zip", {"bomb.bin": b"\0" * 3_000_000}).read_bytes())
    size = (3_000_000).to_bytes(4, "little")
    while size in raw:
        at = raw.index(size)
        raw[at : at + 4] = (10).to_bytes(4, "little")
    (tmp_path / "b.zip").write_bytes(raw)
    unpack(tmp_path / "b.zip", tmp_path / "new", Room(file_bytes=1_000_000))
    assert sum(path.stat().st_size for path in (tmp_path / "new").rglob("*")) <= 1_000_000


def test_too_many_files_and_too_deep(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {**{f"{i}.txt": "x" for i in range(30)}, "d/" * 25 + "x.txt": "x"})
    notes = unpack(archive, tmp_path / "new", Room(files=10))
    assert any("more than 10 files" in note for note in notes)
    assert len(out_of(tmp_path / "new")) == 10
    assert "20 folders deep" in " ".join(unpack(archive, tmp_path / "again"))


def test_odd_names_are_written_under_safe_ones(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"x" * 300 + ".ipynb": "1", "a\x07b.txt": "2", "a/b": "3", "a": "4"})
    notes = unpack(archive, tmp_path / "new")
    assert {"a_b.txt", "x" * 194 + ".ipynb", "a/b"} == out_of(tmp_path / "new")
    assert "a set aside: it cannot be read" in notes[0]


def test_names_of_chinese_zip_programs(tmp_path: Path) -> None:
    name = "李伟.ipynb".encode("gbk").decode("cp437")
    raw = zipped(tmp_path / "a.zip", {"abcd.ipynb": "{}"}).read_bytes()
    assert len("李伟.ipynb".encode("gbk")) == len("abcd.ipynb")
    (tmp_path / "b.zip").write_bytes(raw.replace(b"abcd.ipynb", name.encode("cp437")))
    unpack(tmp_path / "b.zip", tmp_path / "new")
    assert out_of(tmp_path / "new") == {"李伟.ipynb"}


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04" + b"\0" * 40, b"no archive at all"])
def test_what_is_no_archive_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(BadArchive, match=r"bad\.zip cannot be unpacked") as error:
        unpack(tmp_path / "bad.zip", tmp_path / "new")
    assert "\n" not in str(error.value)


def test_a_damaged_or_locked_member_costs_itself(tmp_path: Path) -> None:
    raw = bytearray(zipped(tmp_path / "a.zip", {"one.ipynb": "{}" * 500, "two.ipynb": "{}"}).read_bytes())
    raw[40:44] = b"\xff\xff\xff\xff"  # inside the first member's data
    (tmp_path / "b.zip").write_bytes(raw)
    notes = unpack(tmp_path / "b.zip", tmp_path / "new")
    assert len(notes) == 1 and "one.ipynb set aside" in notes[0]
    assert out_of(tmp_path / "new") == {"two.ipynb"}
    locked = bytearray(zipped(tmp_path / "c.zip", {"one.ipynb": "{}"}).read_bytes())
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "d.zip").write_bytes(locked)
    assert "password" in unpack(tmp_path / "d.zip", tmp_path / "locked")[0]


def test_bad_archives_in_a_class_stop_nobody(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    members = {
        "Ada.zip": zipped(tmp_path / "x" / "ada.zip", {f"work/{TOY}.ipynb": answered()}).read_bytes(),
        "Bo.zip": b"PK\x03\x04 damaged",
        "Cy.zip": zipped(tmp_path / "x" / "cy.zip", {"../../../Cy.ipynb": answered()}).read_bytes(),
        "Di.ipynb": answered(),
    }
    matryoshka = zipped(tmp_path / "x" / "0.zip", {"lab.ipynb": answered()}).read_bytes()
    for depth in range(12):
        matryoshka = zipped(tmp_path / "x" / f"m{depth}.zip", {"inner.zip": matryoshka}).read_bytes()
    members["Eve.zip"] = matryoshka
    found = {one.student: one for one in collect(zipped(tmp_path / "class.zip", members), TOY, toy_course)}
    assert {name for name, one in found.items() if not one.problem} == {"Ada", "Di"}
    assert "Bo.zip cannot be unpacked" in found["Bo"].problem
    assert "leads outside the archive" in found["Cy"].problem
    assert "inner.zip" in found["Eve"].problem
