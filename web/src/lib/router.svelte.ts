// Routes live in the fragment of the URL, so that the page works below any path.
export interface Route {
  path: string[];
  query: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Router {
  route = $state.raw<Route>(read());
  constructor() {
    addEventListener("hashchange", () => (this.route = read()));
  }
  get page(): string {
    return this.route.path[0] ?? "overview";
  }
}

export const router = new Router();

/** Makes the address of a page. Parts may contain slashes, dots and percent signs. */
export function href(path: string | string[], query: Record<string, string | null | undefined> = {}): string {
  const parts = (Array.isArray(path) ? path : [path]).map(encodeURIComponent).join("/");
  const given = Object.entries(query).filter((each): each is [string, string] => !!each[1]);
  return `#/${parts}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

export function go(address: string): void {
  location.hash = address.replace(/^#/, "");
}

/** Changes the query of this page without a new entry in the history. */
export function setQuery(changes: Record<string, string | null>): void {
  const query = new URLSearchParams(router.route.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const path = router.route.path.map(encodeURIComponent).join("/");
  const text = query.toString();
  history.replaceState(null, "", `#/${path}${text ? `?${text}` : ""}`);
  router.route = read();
}

export const messagesHref = (filter: string): string => href("messages", { filter });

/** Writes a value as a filter takes it literally. */
export function quoteTerm(value: string): string {
  return /^[\w.-]+$/.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** The messages that have been claimable for as long as the oldest one. */
export const oldestHref = (readyAt: string, queue?: string): string => messagesHref(`state:ready due<=${readyAt}${queue ? ` queue:${quoteTerm(queue)}` : ""}`);

/** Returns what follows the page's name in the address. It stays as it was while another page is loaded. */
export function usePath(page: string): () => string[] {
  let last: string[] = [];
  const current = $derived(router.route.path[0] === page && router.route.path.length > 1 ? (last = router.route.path.slice(1)) : last);
  return () => current;
}
