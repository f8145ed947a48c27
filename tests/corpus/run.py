"""All definitions of a tree, in parallel."""

import dataclasses
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from saltvirt.design import caps
from tests.corpus import definitions, pure, schema
from tests.corpus.report import together
from tests.lab import process

SIZE = 40


def known_hosts(found):
    """DomainCaps of the tree's own hosts, the newest QEMU last."""
    texts = [one for one in found if one.kind == "domainCapabilities"]
    return [caps.parse_domain(one.text) for one in texts]


class _Keeper:
    """Puts what was written into a folder, a file each, below the name of its schema."""

    def __init__(self, folder, number):
        self.folder, self.number, self.of = Path(folder), f"{os.getpid()}-{number}", {}
        self.edit = {}

    def __call__(self, text, name, edit):
        (self.folder / name).mkdir(exist_ok=True)
        path = self.folder / name / f"{self.number}-{len(self.of)}.xml"
        path.write_text(text, encoding="utf-8")
        self.of[str(path)] = self.file
        self.edit[str(path)] = edit


@dataclasses.dataclass(frozen=True)
class Wish:
    """validate: by libvirt's schemas. every: only each n-th definition. edits: how many each
    guest gets, None for all. live: how many it gets where libvirt has it defined; None for no
    libvirt."""

    validate: bool = True
    every: int = 1
    edits: int | None = None
    live: int | None = None


def _batch(batch, how, folder, number, schemas, wish):
    keep = _Keeper(folder, number) if wish.validate else None
    if keep:
        how = dataclasses.replace(how, keep=keep)
    reports = []
    for one in batch:
        if keep:
            keep.file = one
        reports.append(pure.check(one, how))
    if keep:
        _validate(batch, keep, reports, schemas)
    if wish.live is not None:
        tempfile.tempdir = folder  # the parent takes away what a driver leaves
        from tests.corpus import live

        some = [one for one in batch if one.kind in live.KINDS]
        reports += [live.check(one, by, wish.live) for by in live.drivers() for one in some]
    return list(together(reports).values())


def _validate(batch, keep, reports, schemas):
    """Whatever was written of a valid definition must be valid."""
    by_file = {report_of.file: report for report_of, report in zip(batch, reports, strict=True)}
    originals = {}
    for one in batch:
        if one.schema():
            path = keep.folder / f"{keep.number}-original-{len(originals)}.xml"
            path.write_text(one.text, encoding="utf-8")
            originals[str(path)] = one
    wrong = {originals[path].file for path in _invalid(originals, schemas)}
    for one in originals.values():
        if one.file not in wrong:
            by_file[one.file].add("valid before")
    for path, why in _invalid(keep.of, schemas).items():
        one = keep.of[path]
        if one.file not in wrong:
            by_file[one.file].fail(one.file, f"{keep.edit[path] or 'as it is'}: not valid: {why}")
    for one in keep.of.values():
        if one.file not in wrong:
            by_file[one.file].add("valid written")
    for path in (*originals, *keep.of):
        os.unlink(path)


def _invalid(files, schemas):
    by_schema = {}
    for path, one in files.items():
        by_schema.setdefault(one.schema(), []).append(path)
    found = {}
    for name, paths in by_schema.items():
        found.update(schema.invalid(paths, name, schemas))
    return found


def everything(tree, workers, wish):
    """{kind: Report} of the definitions of a tree."""
    found = definitions.find(tree)
    how = pure.How(tuple(known_hosts(found)), wish.edits)
    chosen = found[:: wish.every]
    schemas = next(Path(tree).glob("*/src/conf/schemas"), schema.INSTALLED)
    batches = [chosen[at : at + SIZE] for at in range(0, len(chosen), SIZE)]
    with process.folder("corpus-") as folder:
        work = [(one, how, folder, number, schemas, wish) for number, one in enumerate(batches)]
        with ProcessPoolExecutor(workers, initializer=process.die_with_parent) as pool:
            reports = [r for some in pool.map(_batch, *zip(*work, strict=True)) for r in some]
    merged = together(reports)
    for one in chosen:
        merged[one.kind].add("definitions")
    return merged
