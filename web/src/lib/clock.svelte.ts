// The store's clock, so that ages are right even if the browser's clock is not.
class Clock {
  now = $state(Date.now());
  private skew = 0;

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now() + this.skew;
    }, 1_000);
  }

  /** Takes over the time that a server just sent. */
  set(iso: string): void {
    this.skew = Date.parse(iso) - Date.now();
    this.now = Date.now() + this.skew;
  }

  since(iso: string): number {
    return (this.now - Date.parse(iso)) / 1_000;
  }
}

export const clock = new Clock();
