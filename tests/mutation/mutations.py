"""All mutations, as data. Each bug fixed adds one."""

from tests.mutation.in_activity import ACTIVITY_MUTATIONS
from tests.mutation.in_adoption import ADOPTION
from tests.mutation.in_governance import GOVERNANCE
from tests.mutation.in_http import HTTP
from tests.mutation.in_logs import TOLD
from tests.mutation.in_mariadb import MARIADB
from tests.mutation.in_operations import OPERATIONS
from tests.mutation.in_pipeline import PIPELINE
from tests.mutation.in_postgres import POSTGRES
from tests.mutation.in_redis import REDIS
from tests.mutation.in_routing import ROUTING
from tests.mutation.in_rules import RULES
from tests.mutation.in_shell import SHELL
from tests.mutation.in_statements import STATEMENTS
from tests.mutation.in_store import STORE
from tests.mutation.in_waiting import WAITING
from tests.mutation.in_worker import WORKER

MUTATIONS = (
    *ACTIVITY_MUTATIONS,
    *ADOPTION,
    *STATEMENTS, *POSTGRES, *MARIADB, *REDIS, *STORE, *RULES, *SHELL, *PIPELINE, *HTTP, *TOLD,
    *GOVERNANCE, *ROUTING, *WORKER, *OPERATIONS, *WAITING,
)  # fmt: skip
