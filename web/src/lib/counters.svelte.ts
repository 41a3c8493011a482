// The numbers beside the items of the menu.
import { client, unwrap } from "./api";
import { clock } from "./clock.svelte";
import { live } from "./live.svelte";
import type { Overview } from "./api";

export interface Counter {
  value: number;
  kind: "" | "bad" | "human";
  title: string;
}
const EVERY_MS = 5_000;

class Counters {
  all = $state.raw<Record<string, Counter>>({});
  private readonly extra: Record<string, Counter> = {};

  start(): () => void {
    void this.load();
    const timer = setInterval(() => {
      if (!document.hidden && !live.paused) void this.load();
    }, EVERY_MS);
    return () => clearInterval(timer);
  }

  /** Takes the numbers that the overview fetched anyway. */
  take(overview: Overview): void {
    clock.set(overview.now);
    this.all = {
      ...this.all,
      queues: { value: overview.queue_count, kind: "", title: "queues" },
      failures: { value: overview.totals.dead, kind: "bad", title: "dead letters" },
      workers: { value: overview.totals.workers, kind: "", title: "live workers" },
      ...this.extra,
    };
  }

  set(name: string, counter: Counter): void {
    this.extra[name] = counter;
    this.all = { ...this.all, [name]: counter };
  }

  private async load(): Promise<void> {
    try {
      this.take(await unwrap(client.GET("/v1/overview", { params: { query: { limit: 1 } } })));
      const inbox = await unwrap(client.GET("/v1/inbox", { params: { query: { view: "all", limit: 200 } } }));
      this.set("inbox", { value: inbox.steps.length, kind: "human", title: "open decisions" });
    } catch {
      // The pages say what is wrong.
    }
  }
}
export const counters = new Counters();
