// Live updates: one stream of changes per browser. The visible tab that leads shares it with others.
import { base } from "./api";

export interface Changes {
  topics: string[];
  queues?: string[];
}
type Status = "live" | "connecting" | "lost";
type Listener = (changes: Changes) => void;

const LEADER_KEY = "penstock.leader";
const LEASE_MS = 4_000;
const RENEW_MS = 1_500;
const EVERYTHING: Changes = { topics: ["messages", "queues", "workers"] };

class Live {
  status = $state<Status>("connecting");
  paused = $state(false);
  private readonly id = Math.random().toString(36).slice(2);
  private readonly listeners = new Set<Listener>();
  private readonly channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(`penstock:${base}`);
  private source: EventSource | null = null;
  private timer: ReturnType<typeof setInterval> | undefined;
  private lost = false;
  onReconnect: () => void = () => {};

  constructor() {
    // Once, however often people sign in and out.
    this.channel?.addEventListener("message", ({ data }: MessageEvent<{ status?: Status; changes?: Changes }>) => {
      if (this.source || this.timer === undefined) return;
      if (data.status) this.setStatus(data.status);
      if (data.changes) this.deliver(data.changes);
    });
    document.addEventListener("visibilitychange", () => {
      if (this.timer === undefined) return;
      if (document.hidden) this.resign();
      else {
        this.elect();
        this.deliver(EVERYTHING);
      }
    });
    addEventListener("pagehide", () => this.resign());
  }

  start(): void {
    if (this.timer !== undefined) return;
    this.timer = setInterval(() => this.elect(), RENEW_MS);
    this.elect();
  }

  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
    this.resign();
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  togglePause(): void {
    this.paused = !this.paused;
    if (!this.paused) this.deliver(EVERYTHING);
  }

  private deliver(changes: Changes): void {
    if (this.paused) return;
    for (const listener of this.listeners) listener(changes);
  }

  /** Takes the lead if no visible tab has it, and keeps it. */
  private elect(): void {
    if (document.hidden) return;
    const now = Date.now();
    let leader: { id: string; until: number } | null = null;
    try {
      leader = JSON.parse(localStorage.getItem(LEADER_KEY + base) ?? "null");
    } catch {
      leader = null;
    }
    if (leader && leader.id !== this.id && leader.until > now && this.channel) {
      this.close();
      return;
    }
    try {
      localStorage.setItem(LEADER_KEY + base, JSON.stringify({ id: this.id, until: now + LEASE_MS }));
    } catch {
      // Without storage every tab has a stream of its own.
    }
    if (!this.source) this.open();
    else this.channel?.postMessage({ status: this.status });
  }

  private resign(): void {
    this.close();
    try {
      const leader = JSON.parse(localStorage.getItem(LEADER_KEY + base) ?? "null");
      if (leader?.id === this.id) localStorage.removeItem(LEADER_KEY + base);
    } catch {
      // As above.
    }
  }

  private open(): void {
    const source = (this.source = new EventSource(`${base}/v1/changes`));
    source.addEventListener("opened", () => this.setStatus("live"));
    source.addEventListener("changes", ({ data }: MessageEvent<string>) => {
      const changes = JSON.parse(data) as Changes;
      this.channel?.postMessage({ changes });
      this.deliver(changes);
    });
    source.onerror = () => {
      this.setStatus("lost");
      // A browser gives up after some answers, for example 503: try again.
      if (source.readyState === EventSource.CLOSED) {
        this.source = null;
      }
    };
  }

  private close(): void {
    this.source?.close();
    this.source = null;
  }

  private setStatus(status: Status): void {
    const back = status === "live" && this.lost;
    this.lost = status === "lost" || (this.lost && status !== "live");
    this.status = status;
    if (this.source) this.channel?.postMessage({ status });
    if (back) {
      this.onReconnect();
      this.deliver(EVERYTHING);
    }
  }
}

export const live = new Live();
