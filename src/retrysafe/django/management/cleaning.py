"""The commands that remove expired records, for a scheduler."""

from argparse import ArgumentParser
from typing import Any, ClassVar

from django.core.management.base import CommandError

from retrysafe._core.model import Door
from retrysafe.cli.exits import Exit
from retrysafe.cli.format import clean, plural, route_text, scope_text, short_id
from retrysafe.cli.words import words
from retrysafe.django.management.operating import OperatingCommand, Progress, project_admin, whole_number
from retrysafe.stores.admin import Admin
from retrysafe.stores.cleanup import BATCH, Cleanup, stop_on_interrupt, withheld_log


class CleanupCommand(OperatingCommand):
    doors: ClassVar[tuple[Door, ...]]
    noun: ClassVar[str]

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="Only print how many there are; remove nothing."
        )
        parser.add_argument(
            "--limit",
            type=whole_number(1),
            metavar="N",
            help="Remove at most N; the rest is left for next time.",
        )
        parser.add_argument(
            "--batch",
            type=whole_number(1),
            default=BATCH,
            metavar="N",
            help="Records per batch; Ctrl-C stops after the current one (default: %(default)s).",
        )
        parser.add_argument(
            "--fail-unresolved",
            action="store_true",
            help="Exit with 1 if an abandoned record expired that was not resolved.",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        limit: int | None = options["limit"]
        with project_admin(options["database"]) as admin:
            backlog = self._expired(admin)
            if options["dry_run"]:
                would = backlog if limit is None else min(backlog, limit)
                self._say(f"{plural(backlog, self.noun)}; {would:,} would be removed.", options)
                return
            cleanup = Cleanup()
            with withheld_log() as logged, stop_on_interrupt() as stopped:
                progress = Progress(
                    backlog if limit is None else min(backlog, limit),
                    self.stderr,
                    shown=options["verbosity"] > 0,
                )
                try:
                    for door in self.doors:
                        cleanup.run(
                            admin,
                            door,
                            batch=options["batch"],
                            limit=limit,
                            stopped=stopped,
                            advance=progress,
                        )
                except BaseException:
                    progress.close()
                    removed = plural(cleanup.removed, self.noun)
                    self.stderr.write(f"Removed {removed} in complete batches before it failed.")
                    for message in logged:
                        self.stderr.write(message)
                    raise
                progress.close()
                # Before anything else that can fail: no other process knows about them any more.
                self._report(cleanup)
            left = self._expired(admin)
        self._say(f"Removed {plural(cleanup.removed, self.noun)}; {left:,} left.", options)
        if stopped():
            raise CommandError(
                "interrupted between two batches; what was removed stays removed", returncode=Exit.INTERRUPTED
            )
        if cleanup.unresolved and options["fail_unresolved"]:
            raise CommandError(
                f"{plural(len(cleanup.unresolved), 'abandoned record')} expired unresolved",
                returncode=Exit.FOUND,
            )

    def _expired(self, admin: Admin) -> int:
        return sum(admin.expired(door) for door in self.doors)

    def _say(self, text: str, options: dict[str, Any]) -> None:
        if options["verbosity"] > 0:
            self.stdout.write(text)

    def _report(self, cleanup: Cleanup) -> None:
        """An unknown outcome must not disappear unnoticed."""
        if not cleanup.unresolved:
            return
        number = plural(len(cleanup.unresolved), "abandoned record")
        self.stderr.write(f"{number} expired unresolved; the outcome stays unknown:")
        for record in cleanup.unresolved:
            route, scope = route_text(record.action, record.target), scope_text(record.scope)
            call = words(record.door).call
            self.stderr.write(f"  {short_id(record.id)}  {route}  {scope}  {call} {clean(record.request_id)}")
