"""The lines that run, read from the shipped source, beside what they do in a few lines of pseudocode.

In the sources a mechanism stands between two comments, ``show: <name>`` and ``end: <name>``. Nothing is copied: who
changes the kernel changes what is shown.
"""

from __future__ import annotations

import functools
import html
import re
import textwrap
from dataclasses import dataclass
from typing import NamedTuple

from gnnsample_lab import checks
from gnnsample_lab.device.kernels import PACKAGE_ROOT

_MARK = re.compile(r"^[ \t]*(?://|#) (show|end): (.+?)[ \t]*$")
_PRE = (
    "font-family:var(--jp-code-font-family,monospace);font-size:12px;line-height:1.45;margin:0;padding:8px 10px;"
    "overflow-x:auto;white-space:pre-wrap;word-break:normal;overflow-wrap:break-word;border-radius:6px;color:var(--jp-ui-font-color1,#1b1b1b);"
    "background:var(--jp-layout-color2,#f5f6f8)"
)
_SOFT = "font-size:12px;color:var(--jp-ui-font-color2,#5a5a5a);margin:0 0 3px"


class Idea(NamedTuple):
    """``steps``: pseudocode in our words. ``place``: where the paper has it."""

    steps: str
    place: str


MECHANISMS: dict[str, Idea] = {
    "number by address": Idea(
        """
        key     = the seed of the run
        counter = (vertex, mini-batch, purpose and hop, number of the draw)
        ten times:
            multiply two words of the counter by fixed odd numbers
            mix high halves, the other words and the key; keep low halves
            step the key on
        the four words of the counter are four random numbers
        """,
        "Salmon and others, SC 2011: Philox-4x32 with ten rounds",
    ),
    "grow a frontier": Idea(
        """
        for each pick u of this hop, 128 at a time in a warp:
            write u where the results of the hop belong
            if a further hop follows:
                fresh = nobody has marked (u, next hop) before me  # atomic
                if fresh: put u on the warp's list
                list full: reserve places for all of it by one atomic
        """,
        "PGSampler, Algorithm 2 (deduplication), lines 1 to 12",
    ),
    "draw without replacement": Idea(
        """
        k picks out of d neighbours, a lane of a warp for each: slot i draws t from 0 .. d - k + i
        slot i moves to d - k + i, which no earlier slot can have, if t is taken:
            an earlier slot drew the same t  # one match over the warp
            or t = d - k + j, and slot j < i has moved there
        repeat the second test until nobody moves  # two rounds on average
        """,
        "Bentley and Floyd, CACM 1987; PGSampler's Sample(), Algorithm 1, line 22, leaves the rule open",
    ),
    "draw with a reservoir": Idea(
        """
        the first k neighbours take the k slots
        for each further neighbour j, all of them at once:
            slot = a random number from 0 to j
            if slot < k: the highest j that wants a slot gets it  # atomicMax
        """,
        "Vitter, ACM TOMS 1985, algorithm R; DGL's kernel, PGSampler's baseline (section II)",
    ),
    "claim a slot": Idea(
        """
        one thread of the block:
            report finished tasks: outstanding -= done
            ticket = head; head += fetch size  # one atomic
        all threads: serve the slots ticket .. ticket + fetch size - 1
        """,
        "PGSampler, Algorithm 1, lines 33 to 38",
    ),
    "publish a task": Idea(
        """
        one thread of the block:
            outstanding += new tasks  # first, so that it cannot be 0 too early
            base = tail; tail += new tasks  # one atomic for all of them
        each thread: write a task into its slot, then publish it  # release
        """,
        "PGSampler, Algorithm 1, lines 27 to 31; the count of outstanding tasks is ours",
    ),
    "detect the end": Idea(
        """
        report finished tasks
        until my slot is published:  # acquire
            if no task is outstanding, or there was an error:
                look at the slot once more; still empty: leave
            rest for 100 ns
        """,
        "PGSampler, section III-C (4) and Algorithm 1, line 12, whose test loses tasks; this rule is ours",
    ),
    "group by transit": Idea(
        """
        for each pair of sample and transit, four in a thread:
            rank = how many pairs of this transit came before  # one atomic
        # later: place of a pair = where its transit begins + rank
        """,
        "NextDoor, section 6.1.2 (scheduling index, first stage); there by a radix sort",
    ),
    "gather a transit's list": Idea(
        """
        a block has one transit and all samples that stand on it
        if enough is drawn from its list, and it fits:
            threads copy the list to shared memory together
        for each slot to be filled, a thread each:
            draw a neighbour from the copy; write it to the slot's sample
        """,
        "NextDoor, sections 5.2 and 6.1.2 (caching, thread block kernel)",
    ),
    "insert into Fused-Map": Idea(
        """
        at = hash(v)
        until the entry at `at` holds v:
            if it is empty: try to put v there  # compare and swap
                it worked: I am the one who gives v its local id
                else: look at who was faster
            else: at = at + 1, around the end; too many steps: report it
        """,
        "FastGL, Algorithm 2, lines 9 to 24; line 16 prints the flag the wrong way round",
    ),
    "look up in the cache": Idea(
        """
        place of vertex v = as it was marked, or by its bit
        in the cache: its row there
        in the mini-batch before: the row that lies there (Match)
        nowhere: a miss; its row in the host's memory, if this kernel may read it
        """,
        "GNNLab, section 6.1 (cache table); FastGL, section 4.1 (Match)",
    ),
    "find a row by its bit": Idea(
        """
        read the word of 32 vertices that holds v, and its count
        the bit of v is set: v is cached, and its row is
            the count: cached vertices before this word
            and the bits below v's in the word
        else: v is not cached
        """,
        "ours; GNNLab, section 6.1, has a hash table of the cached vertices",
    ),
    "extract rows": Idea(
        """
        a warp takes some rows at once, its 32 lanes go along the features:
            read a piece of each row, wherever it lies  # all under way together
            write the pieces to the rows of the mini-batch
        """,
        "GNNLab, section 6.1 (Extract)",
    ),
    "match with the last batch": Idea(
        """
        for each vertex v of the mini-batch, a thread each:
            row = where the last mini-batch had v, if it had it
            location = that row, else the row in the cache, else: load it
        """,
        "FastGL, section 4.1 (Match)",
    ),
    "reorder the batches": Idea(
        """
        begin with batch 0
        repeat: never go back to where we have been
                go on to the batch that has most in common with this one
        """,
        "FastGL, Algorithm 1, lines 4 to 12; there visited batches get 0, here minus infinity",
    ),
    "aggregate in shared memory": Idea(
        """
        a thread has one feature of one row; its partial sum lies in shared memory
        for each neighbour, four at a time:
            value = its feature  # global memory, or a cache
            sum  += weight * value  # both from shared memory
        write the sum once  # global memory
        """,
        "FastGL, section 4.2 and equation 4",
    ),
    "answer a request": Idea(
        """
        the owner, for each vertex that somebody asks for, a warp each:
            find its list; it lies here
            draw by (seed, mini-batch, hop, vertex)  # as any other rank would
            put the picks where the answer to that rank is packed
        """,
        "DSP, section 4.1: the middle one of the stages shuffle, sample, reshuffle",
    ),
    "read a peer's memory": Idea(
        """
        where = owner of v, and v's row there  # own memory
        read begin and length of the list  # the owner's memory
        the begin is an address: picks are read from there too
        """,
        "ours; DSP, section 4.1 has two ways, requests (push) and whole lists (pull)",
    ),
    "hand over a batch": Idea(
        """
        wait while the queue to the next stage is full
            (the batch that is next in order always comes in)
        put the batch in; wake up who waits; note depth and time
        """,
        "DSP, section 5 and figure 7: queues of capacity 2 between sampler, loader and trainer",
    ),
    "split the GPUs": Idea(
        """
        K = time of a trainer for a mini-batch / time of a sampler for one
        samplers = GPUs / (K + 1), rounded up
        at least one GPU samples, at most all (or all but one)
        """,
        "GNNLab, section 5.3",
    ),
    "ask for the next vertex": Idea(
        """
        t = where the walk was before
        repeat: propose a neighbour u of where it stands, by weight alone
                accept with 1/p where u = t; 1 where u is near t; 1/q elsewhere
                (each over the largest of the three)
        """,
        "NextDoor, section 4.2 and figure 4a; the rejection is KnightKing's",
    ),
}
"""What can be shown, by the name in the markers."""


@dataclass(frozen=True)
class Listing:
    """Lines of the source beside their pseudocode; shows itself in a notebook.

    Attributes:
        name: the mechanism.
        file: path in the package, with forward slashes. first_line: number of the first line of ``code``.
        code: the lines as they are compiled or run, indentation removed.
        pseudocode: the idea. place: where the paper has it.
    """

    name: str
    file: str
    first_line: int
    code: str
    pseudocode: str
    place: str

    def __repr__(self) -> str:
        return (
            f"{self.name}\n\n{self.pseudocode}\n({self.place})\n\n"
            f"gnnsample_lab/{self.file}, from line {self.first_line}\n\n{self.code}"
        )

    def _repr_html_(self) -> str:
        def part(head: str, text: str, foot: str, width: str) -> str:
            pre = f'<pre tabindex="0" style="{_PRE}">{"".join(map(_line, text.splitlines()))}</pre>'
            return (
                f'<div style="flex:{width};min-width:0"><p style="{_SOFT}"><b>{head}</b></p>{pre}'
                f'<p style="{_SOFT};margin-top:3px">{html.escape(foot)}</p></div>'
            )

        lines = f"gnnsample_lab/{self.file}, from line {self.first_line}"
        heading = self.name[:1].upper() + self.name[1:]  # capitalize() would write "gpus" and "fused-map"
        return (
            f'<figure class="gnnsample-listing" data-name="{html.escape(self.name)}" style="margin:4px 0">'
            f'<figcaption style="font-weight:600;margin-bottom:4px">{html.escape(heading)}</figcaption>'
            f'<div style="display:flex;flex-wrap:wrap;gap:10px 14px">'
            f"{part('The idea', self.pseudocode, self.place, '2 1 390px')}"
            f"{part('The lines that run', self.code, lines, '3 1 390px')}"
            "</div></figure>"
        )


def _line(text: str) -> str:
    """A line of a listing; where it is too long, the rest stands further in."""
    further = len(text) - len(text.lstrip()) + 4
    style = f"display:block;padding-left:{further}ch;text-indent:-{further}ch"
    return f'<span style="{style}">{html.escape(text) or " "}</span>'


def _dedented(lines: list[str]) -> str:
    """Lines without the indentation that they share; directives to the compiler, which have none, are moved along."""
    code = [line for line in lines if line.strip() and not line.startswith("#")]
    common = min(len(line) - len(line.lstrip()) for line in code)
    return "\n".join(line if line.startswith("#") else line[common:] for line in lines)


@functools.cache
def _marked() -> dict[str, tuple[str, int, str]]:
    """Mechanism -> (file, number of its first line, lines).

    Raises:
        RuntimeError: a marker that is not closed, or that is there twice.
    """
    found: dict[str, tuple[str, int, str]] = {}
    paths = [path for suffix in ("cu", "cuh", "py") for path in sorted(PACKAGE_ROOT.rglob(f"*.{suffix}"))]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if " show: " not in text and " end: " not in text:
            continue
        lines, begun = text.splitlines(), dict[str, int]()
        for number, line in enumerate(lines):
            mark = _MARK.match(line)
            if mark is None:
                continue
            what, name = mark.groups()
            if what == "show" and name not in begun and name not in found:
                begun[name] = number + 1
            elif what == "end" and name in begun:
                first = begun.pop(name)
                code = _dedented([one for one in lines[first:number] if not _MARK.match(one)])
                found[name] = (path.relative_to(PACKAGE_ROOT).as_posix(), first + 1, code)
            else:
                raise RuntimeError(
                    f"{path.name}:{number + 1}: the marker {what!r} of {name!r} has no partner"
                )
        if begun:
            raise RuntimeError(f"{path.name}: the marker of {next(iter(begun))!r} has no end")
    return found


def show_code(name: str) -> Listing:
    """The lines that run for a mechanism, beside its pseudocode and its place in the paper.

    Args:
        name: of the mechanism, such as ``"claim a slot"``; a wrong one is answered with those there are.

    Raises:
        TypeError: not a text.
        ValueError: no such mechanism.
    """
    checks.choice("name", name, tuple(MECHANISMS))
    file, first_line, code = _marked()[name]
    idea = MECHANISMS[name]
    return Listing(name, file, first_line, code, textwrap.dedent(idea.steps).strip("\n"), idea.place)
