"""Routes of saved views: filters of messages that the dashboard offers by name."""

from penstock.broker.views import SavedView, SavedViews
from penstock.http.auth.principal import Extent
from penstock.http.context import RequestContext
from penstock.http.operations import OperationTable
from penstock.rules.access import Right
from penstock.wire.dashboard import NewView, SavedViewView, SavedViewViews
from penstock.wire.fields import Name, to_datetime

views = OperationTable("views")


@views.add("GET", "/v1/views", "List saved views", SavedViewViews, extent=Extent.SCOPE)
async def list_views(call: RequestContext) -> SavedViewViews:
    """Filters of messages under a name, for everyone who reads the scope."""
    found = await get_views(call, Right.READ).list(scope=call.scope)
    return SavedViewViews([make_view(each) for each in found])


@views.add("PUT", "/v1/views/{name}", "Save a view", SavedViewView, takes=NewView,
           extent=Extent.SCOPE, example={"filter": "state:dead queue:mail"})  # fmt: skip
async def save_view(call: RequestContext, name: Name, new: NewView) -> SavedViewView:
    """Creates a view or replaces the one of that name."""
    view = SavedView(name, new.filter, call.caller.subject)
    return make_view(await get_views(call, Right.MANAGE).save(view, scope=call.scope))


@views.add("DELETE", "/v1/views/{name}", "Delete a view", None, status=204, extent=Extent.SCOPE)
async def delete_view(call: RequestContext, name: Name) -> None:
    await get_views(call, Right.MANAGE).delete(name, scope=call.scope)


def get_views(call: RequestContext, right: Right) -> SavedViews:
    call.check(right, "*")
    return SavedViews(call.service.store, call.admin)


def make_view(view: SavedView) -> SavedViewView:
    return SavedViewView(view.name, view.filter, view.saved_by, to_datetime(view.saved_at))
