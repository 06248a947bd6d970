# SPDX-License-Identifier: Apache-2.0
"""`stepscope whatif`: how long a step would be if something took more or less time, or did not happen."""

from __future__ import annotations

import argparse

from stepscope.cli.options import WITHOUT, add_captures, add_json, add_out, add_rank, add_source, add_step

EXAMPLES = """\
  stepscope whatif runs/ --scale "kernel~MatMul=0.5"       matrix products twice as fast
  stepscope whatif runs/ --without sync,gc                 no waits of the host, no garbage collection
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_captures(parser)
    parser.add_argument(
        "--scale", action="append", default=[], metavar="CHANGE",
        help="kernel~PATTERN=FACTOR, op~PATTERN=FACTOR, collective=FACTOR or copy=FACTOR; repeat for more",
    )  # fmt: skip
    parser.add_argument("--without", type=_words, default=(), metavar="A,B", help=f"leave out some of {', '.join(WITHOUT)}")
    add_rank(parser, "all, joined where they meet in collectives")
    add_step(parser)
    add_json(parser, "text")
    add_out(parser)
    add_source(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.cli.show import results_in

    with results_in(args.out):
        _show(args)
    return 0


def _show(args: argparse.Namespace) -> None:
    import orjson

    from stepscope.cli.chosen import chosen_tables
    from stepscope.verdict.what_if import what_if_ranks

    ranks = list(chosen_tables(args))
    for tables, found in zip(ranks, what_if_ranks(ranks, scale=args.scale, without=args.without), strict=True):
        rank = tables.facts.rank
        if args.json:
            print(orjson.dumps({"rank": rank if rank >= 0 else None, **found.as_dict()}).decode())
            continue
        head = f"rank {rank}: " if rank >= 0 else ""
        doubt = f" (± {found.then_ms * found.error:.1f})" if found.error >= 0.001 else ""
        print(f"{head}{found.then_ms:.1f} ms a step (mean), now {found.now_ms:.1f}{doubt}")
        if found.bottleneck:
            print(f"  then first: {found.bottleneck}, {found.bottleneck_share:.0%} of the critical path")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
