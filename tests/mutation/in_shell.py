"""Mutations of shell jobs: who may run them, and what they leave behind."""

from tests.mutation.mutation import Mutation

TEST = "tests/worker/test_shell.py"

SHELL = (
    Mutation("shell_job_in_any_queue", "rules/drafts.py", "check_shell",
             "draft.type == SHELL_TYPE and not settings.shell", "False", TEST),
    Mutation("shell_queue_for_any_handler", "worker/dispatcher.py", "open",
             'queue.settings.shell and handler.executor != "shell"', "False", TEST),
    Mutation("output_without_a_cap", "worker/executors/shell.py", "write_output", "if left > 0:", "if True:", TEST),
    Mutation("environment_of_the_worker", "worker/executors/shell.py", "make_environment",
             "for name in INHERITED if name in os.environ", "for name in os.environ", TEST),
    Mutation("output_for_all_to_read", "worker/executors/shell.py", "open_output", "mode=0o700", "mode=0o755",
             TEST),
    Mutation("children_left_behind", "worker/executors/subreaper.py", "end_tree", "while pids := list_children():",
             "while pids := []:", TEST),
    Mutation("sigpipe_ignored", "worker/executors/subreaper.py", "exec_command", "for number in (PIPE, XFSZ):",
             "for number in ():", TEST),
    Mutation("poll_interval_is_ignored", "worker/fetcher.py", "wait_for_work",
             "queue.settings.poll_interval or longest", "longest", "tests/worker/test_faststream.py"),
    Mutation("killed_at_once", "worker/executors/subreaper.py", "end_politely", "send(pid, TERM, group=True)",
             "return", TEST),
)  # fmt: skip
