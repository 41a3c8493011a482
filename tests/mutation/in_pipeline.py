"""Mutations of the pipeline: what keeps the lake whole, and what notices when it is not."""

from tests.mutation.mutation import Mutation

RANGES = "tests/pipeline/test_ranges.py"
EXTRACT = "tests/pipeline/test_extract.py"
SPARK = "tests/pipeline/test_spark.py"

PIPELINE = (
    Mutation("page_past_the_end", "pipeline/ranges.py", "pages", "reached <= part.last and rows",
             "rows", RANGES),
    Mutation("last_position_too_low", "pipeline/ranges.py", "last_position",
             "while found + 1 < beyond:", "while found + 2 < beyond:", RANGES),
    Mutation("reading_makes_a_store", "pipeline/stores.py", "refuse_new",
             "path is not None and not os.path.exists(path)", "False", RANGES),
    Mutation("record_before_the_manifest", "pipeline/extract.py", "extract_batch",
             "lake.publish(manifest)",
             "using(url, lambda store: store.save_cursor(lake.cursor_name, end));"
             " lake.publish(manifest)",
             EXTRACT),
    Mutation("retention_not_held", "pipeline/extract.py", "resume",
             "await store.save_cursor(lake.cursor_name, cursor)", "pass", EXTRACT),
    Mutation("restored_store_trusted", "pipeline/extract.py", "refuse_strange",
             "behind or await witness(store, chain[-1].end) != chain[-1].witness", "False",
             EXTRACT),
    Mutation("witness_not_asked", "pipeline/extract.py", "refuse_strange",
             "behind or await witness(store, chain[-1].end) != chain[-1].witness", "behind",
             EXTRACT),
    Mutation("lake_of_any_store", "pipeline/lake.py", "refuse_foreign",
             "lake.label.store != store", "False", EXTRACT),
    Mutation("manifest_written_twice", "pipeline/lake.py", "write_once", "os.link(draft, path)",
             "os.replace(draft, path); draft.touch()", EXTRACT),
    Mutation("manifest_unchecked", "pipeline/manifest.py", "decode",
             "manifest.check != checked(manifest)", "False", EXTRACT),
    Mutation("strays_stay", "pipeline/lake.py", "sweep", "path.unlink()", "pass", EXTRACT),
    Mutation("compaction_takes_the_old_along", "pipeline/lake.py", "manifests",
             "(each.first, -each.last)", "(each.first, each.last)", EXTRACT),
    Mutation("compaction_unequal", "pipeline/compact.py", "refuse_unequal", "rows[0] != rows[1]",
             "False", EXTRACT),
    Mutation("filter_forgotten", "pipeline/source.py", "", "yield apply(self.filters, batch)",
             "yield batch",
             f"{SPARK}::test_filters_are_left_to_the_source_and_exact"),
    Mutation("stream_past_its_limit", "pipeline/offsets.py", "after", "if rows is None:",
             "if True:",
             f"{SPARK}::test_a_stream_goes_on_where_it_stopped"),
    Mutation("damaged_file_trusted", "pipeline/balance.py", "sound", '== part.sha256', '!= ""',
             f"{SPARK}::test_the_commands_say_what_they_did"),
    Mutation("sums_trusted_blindly", "pipeline/balance.py", "balance",
             "or damaged or found or doubtful", "or damaged or found",
             f"{SPARK}::test_a_lost_row_is_found_even_if_the_manifest_was_made_to_fit"),
    Mutation("doubled_row_unseen", "pipeline/difference.py", "doubled", "times > 1", "times > 2",
             f"{SPARK}::test_a_doubled_and_a_changed_row_are_found"),
    Mutation("archived_rows_missed", "pipeline/difference.py", "compared",
             "kind <> 'extra' or archived is null", "true",
             f"{SPARK}::test_what_retention_took_is_still_in_balance"),
)  # fmt: skip
