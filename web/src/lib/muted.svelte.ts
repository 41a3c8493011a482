// Causes of failure that the viewer muted in this browser.
const KEY = "penstock.muted";

function read(): string[] {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]") as string[];
  } catch {
    return [];
  }
}

class Muted {
  all = $state.raw(new Set<string>(read()));

  toggle(fingerprint: string): void {
    const next = new Set(this.all);
    if (!next.delete(fingerprint)) next.add(fingerprint);
    this.all = next;
    try {
      localStorage.setItem(KEY, JSON.stringify([...next]));
    } catch {
      // It lasts as long as the page.
    }
  }
}

export const muted = new Muted();
