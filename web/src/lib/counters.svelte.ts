// The numbers beside the items of the menu.
import { client, unwrap, type Overview, type Schemas } from "./api";
import { clock } from "./clock.svelte";
import { count } from "./format";
import { live } from "./live.svelte";
import { muted } from "./muted.svelte";
import { onMessages } from "./query.svelte";

export interface Counter {
  value: number;
  /** There may be more. */
  more?: boolean;
  kind: "" | "bad" | "human";
  title: string;
}
const EVERY_MS = 5_000;
const TROUBLES_EVERY_MS = 15_000;
const MAX_ANOMALIES = 100;
const MIN_INBOX_MS = 1_000;
const MAX_STEPS = 200;
const ofInbox = onMessages(() => "_human");

class Counters {
  all = $state.raw<Record<string, Counter>>({});
  /** Open decisions, which the menu and the pages show. */
  inbox = $state.raw<Schemas["HumanStepView"][]>();
  /** Open anomalies that are not muted. */
  anomalies = $state.raw<Schemas["AnomalyView"][]>();
  private taken = 0;
  private soon: ReturnType<typeof setTimeout> | undefined;

  start(): () => void {
    void this.load();
    void this.loadInbox();
    void this.loadTroubles();
    const quiet = (): boolean => document.hidden || live.paused;
    const timers = [
      setInterval(() => {
        if (!quiet() && Date.now() - this.taken > EVERY_MS) void this.load();
      }, EVERY_MS),
      setInterval(() => {
        if (!quiet()) void this.loadTroubles();
      }, TROUBLES_EVERY_MS),
    ];
    const deaf = live.listen((changes) => {
      if (!ofInbox(changes) || this.soon !== undefined) return;
      this.soon = setTimeout(() => {
        this.soon = undefined;
        void this.loadInbox();
      }, MIN_INBOX_MS);
    });
    return () => {
      timers.forEach(clearInterval);
      clearTimeout(this.soon);
      deaf();
    };
  }

  /** Takes the numbers that the overview fetched anyway. */
  take(overview: Overview): void {
    clock.set(overview.now);
    this.taken = Date.now();
    this.set("queues", { value: overview.queue_count, kind: "", title: "queues" });
    this.set("workers", { value: overview.totals.workers, kind: "", title: "live workers" });
  }

  set(name: string, counter: Counter): void {
    this.all = { ...this.all, [name]: counter };
  }

  // Where these fail, the pages say what is wrong.
  private async load(): Promise<void> {
    await unwrap(client.GET("/v1/overview", { params: { query: { limit: 1 } } })).then((found) => this.take(found), () => {});
  }

  async loadInbox(): Promise<void> {
    await unwrap(client.GET("/v1/inbox", { params: { query: { view: "all", limit: MAX_STEPS } } })).then((found) => {
      this.inbox = found.steps;
      this.set("inbox", { value: found.steps.length, more: !!found.cursor, kind: "human", title: "open decisions" });
    }, () => {});
  }

  private async loadTroubles(): Promise<void> {
    await Promise.all([this.loadCauses(), this.loadAnomalies()]);
  }

  private async loadAnomalies(): Promise<void> {
    await unwrap(client.GET("/v1/anomalies", { params: { query: { state: "open", limit: MAX_ANOMALIES } } })).then((found) => {
      this.anomalies = found.anomalies.filter((each) => !each.muted);
      this.set("anomalies", { value: this.anomalies.length, more: found.anomalies.length >= MAX_ANOMALIES, kind: "bad", title: "open anomalies" });
    }, () => {});
  }

  async loadCauses(): Promise<void> {
    await unwrap(client.GET("/v1/failures/causes")).then(({ fingerprints, complete }) => {
      const shown = fingerprints.filter((each) => !muted.all.has(each));
      this.set("failures", { value: shown.length, more: !complete, kind: "bad", title: "causes of failure in the last 24 hours" });
    }, () => {});
  }
}
export const counters = new Counters();
/** The number as it is shown. */
export const counterText = (counter: Counter): string => `${count(counter.value)}${counter.more ? "+" : ""}`;
