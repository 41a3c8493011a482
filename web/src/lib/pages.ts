// The pages of the menu, in order. A page with a key is reached by g and that key.
import type { Component } from "svelte";
import { href } from "./router.svelte";

export interface Page {
  name: string;
  title: string;
  group: "" | "Govern" | "Analyse";
  href: string;
  key?: string;
  load: () => Promise<{ default: Component }>;
}

const page = (name: string, title: string, group: Page["group"], load: Page["load"], key?: string): Page => ({ name, title, group, href: href(name), key, load });

export const pages: Page[] = [
  page("overview", "Overview", "", () => import("../pages/Overview.svelte"), "o"),
  page("queues", "Queues", "", () => import("../pages/Queues.svelte"), "q"),
  page("messages", "Messages", "", () => import("../pages/Messages.svelte"), "m"),
  page("failures", "Failures", "", () => import("../pages/Failures.svelte"), "f"),
  page("workers", "Workers", "", () => import("../pages/Workers.svelte"), "w"),
  page("schedules", "Schedules", "", () => import("../pages/Schedules.svelte"), "s"),
  page("workflows", "Workflows", "", () => import("../pages/Workflows.svelte"), "l"),
  page("inbox", "Inbox", "", () => import("../pages/Inbox.svelte"), "i"),
  page("rules", "Rules", "Govern", () => import("../pages/Rules.svelte"), "r"),
  page("schemas", "Schemas", "Govern", () => import("../pages/Schemas.svelte")),
  page("access", "Access", "Govern", () => import("../pages/Access.svelte")),
  page("audit", "Audit", "Govern", () => import("../pages/Audit.svelte"), "a"),
  page("analytics", "Analytics", "Analyse", () => import("../pages/Analytics.svelte"), "y"),
  page("bulk", "Bulk actions", "Analyse", () => import("../pages/Bulk.svelte"), "b"),
  page("anomalies", "Anomalies", "Analyse", () => import("../pages/Anomalies.svelte"), "n"),
  page("agents", "Agents", "Analyse", () => import("../pages/Agents.svelte")),
];

/** Pages that belong to one of the menu: their name, and that of the item to mark. */
export const subpages: Record<string, { title: string; parent: string; load: Page["load"] }> = {
  message: { title: "Messages", parent: "messages", load: () => import("../pages/Message.svelte") },
  trace: { title: "Trace", parent: "messages", load: () => import("../pages/Trace.svelte") },
  subscription: { title: "Queues", parent: "queues", load: () => import("../pages/Subscription.svelte") },
  queue: { title: "Queues", parent: "queues", load: () => import("../pages/Queue.svelte") },
};
