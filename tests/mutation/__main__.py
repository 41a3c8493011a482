"""The command: tries the mutations, and prints which test caught each."""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from tests.mutation.mutation import Mutation
from tests.mutation.mutations import MUTATIONS
from tests.mutation.trial import Trial, Verdict, attempt

STORES = sorted({each.store for each in MUTATIONS if each.store is not None})


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    mutations = choose(options.store, options.only)
    if options.list:
        print("\n".join(f"{each.name:<38} {where(each)}" for each in mutations))
        return 0
    show = as_json if options.json else as_rows
    trials: list[Trial] = []
    for trial in attempt(mutations, options.jobs):
        trials.append(trial)
        print(show(trial), flush=True)
    caught = sum(trial.verdict is Verdict.CAUGHT for trial in trials)
    print(f"{caught} of {len(trials)} mutations caught", file=sys.stderr)
    return 0 if caught == len(trials) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("./dev mutate", description=__doc__)
    parser.add_argument("--store", choices=STORES, help="its mutations, and those of the rules")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutations")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="at a time")
    parser.add_argument("--list", action="store_true", help="name them, and try none")
    parser.add_argument("--json", action="store_true", help="print one object a line")
    options = parser.parse_args(arguments)
    if unknown := set(options.only or ()) - {each.name for each in MUTATIONS}:
        parser.error(f"no mutation named {', '.join(sorted(unknown))}; --list names them")
    return options


def choose(store: str | None, only: Sequence[str] | None) -> list[Mutation]:
    return [
        each
        for each in MUTATIONS
        if (store is None or each.store in (None, store)) and (only is None or each.name in only)
    ]


def where(mutation: Mutation) -> str:
    return f"{mutation.file} {mutation.place}"


def as_json(trial: Trial) -> str:
    return msgspec.json.encode(trial).decode()


def as_rows(trial: Trial) -> str:
    """Its verdict, name, place, time and test; below, the change."""
    mutation = trial.mutation
    file, _, test = trial.test.partition("::")
    told = f"{file.rpartition('/')[2]} {test}" if trial.test else trial.reason
    return (
        f"{trial.verdict:<9} {mutation.name:<38} {where(mutation):<44} {trial.seconds:6.1f} s  "
        f"{told}\n          - {mutation.old.strip()}\n          + {mutation.new.strip()}"
    )


if __name__ == "__main__":
    sys.exit(main())
