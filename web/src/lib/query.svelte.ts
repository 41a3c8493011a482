// A value from the server that is fetched again when it may have changed.
import { explainError, isTransient } from "./api";
import { live, type Changes } from "./live.svelte";

const MIN_INTERVAL_MS = 500;
const RETRY_MS = 3_000;

export class Query<T> {
  value = $state.raw<T>();
  error = $state<string>();
  loading = $state(true);
  private running: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private loadedAt = 0;
  private stale = false;

  constructor(private readonly load: (signal: AbortSignal) => Promise<T>) {}

  async refresh(): Promise<void> {
    this.running?.abort();
    const running = (this.running = new AbortController());
    this.stale = false;
    try {
      const value = await this.load(running.signal);
      if (this.running !== running) return;
      this.value = value;
      this.error = undefined;
    } catch (error) {
      if (this.running !== running || (error instanceof DOMException && error.name === "AbortError")) return;
      this.error = explainError(error);
      if (isTransient(error)) this.retry();
    }
    this.running = null;
    this.loading = false;
    this.loadedAt = Date.now();
    if (this.stale) this.soon();
  }

  /** Refreshes once, however many changes arrive in the meantime. */
  soon(): void {
    if (this.running) {
      this.stale = true;
      return;
    }
    if (this.timer !== undefined) return;
    const wait = Math.max(0, this.loadedAt + MIN_INTERVAL_MS - Date.now());
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.refresh();
    }, wait);
  }

  private retry(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.timer = undefined;
      if (document.hidden || live.paused) this.retry();
      else void this.refresh();
    }, RETRY_MS);
  }

  stop(): void {
    this.running?.abort();
    this.running = null;
    clearTimeout(this.timer);
    this.timer = undefined;
  }
}

interface Options {
  /** Decides whether a change concerns this value. Without it, nothing does. */
  when?: (changes: Changes) => boolean;
  /** Milliseconds after which the value is fetched again in any case. */
  every?: number;
}

/** Call while a component is made. `load` runs again when what it reads changes. */
export function query<T>(load: (signal: AbortSignal) => Promise<T>, options: Options = {}): Query<T> {
  const made = new Query<T>((signal) => load(signal));
  $effect(() => {
    // The synchronous part of `load` reads what it depends on.
    void made.refresh();
    return () => made.stop();
  });
  $effect(() => live.listen((changes) => {
    if (options.when?.(changes)) made.soon();
  }));
  if (options.every) {
    const timer = setInterval(() => {
      if (!document.hidden && !live.paused) made.soon();
    }, options.every);
    $effect(() => () => clearInterval(timer));
  }
  return made;
}

export const onMessages = (queue?: () => string | undefined) => (changes: Changes): boolean => {
  const name = queue?.();
  return changes.topics.includes("messages") && (!name || !changes.queues || changes.queues.includes(name));
};
export const onTopic = (...topics: string[]) => (changes: Changes): boolean => topics.some((topic) => changes.topics.includes(topic));
