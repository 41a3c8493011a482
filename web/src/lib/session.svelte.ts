// Who looks at this page, and what they may do.
import { client, unwrap, useCsrf, whenSignedOut, type Session } from "./api";

export type Right = "publish" | "consume" | "read" | "manage" | "access" | "shell" | "reveal" | "signal" | "decide";
const PHRASES: Record<Right, string> = {
  publish: "publish", consume: "consume", read: "read", manage: "manage", access: "manage access",
  shell: "publish shell jobs", reveal: "reveal masked fields", signal: "send signals", decide: "decide requests",
};

class SessionState {
  current = $state.raw<Session | null>(null);
  build = "";
  outdated = $state(false);

  constructor() {
    whenSignedOut(() => {
      if (this.current?.signed_in) this.current = { asks: true, signed_in: false, reason: "Your session has ended. Sign in again." };
    });
  }

  async load(): Promise<void> {
    const found = await unwrap(client.GET("/v1/session"));
    useCsrf(found.csrf);
    if (found.build) {
      // Another version answers than the one that made this page, or another build of it.
      this.outdated = (!!found.version && found.version !== __VERSION__) || (this.build !== "" && found.build !== this.build);
      this.build ||= found.build;
    }
    this.current = found;
  }

  async signIn(key: string): Promise<void> {
    await unwrap(client.POST("/v1/session", { body: { key } }));
    await this.load();
  }

  async signOut(): Promise<void> {
    await unwrap(client.DELETE("/v1/session"));
    await this.load();
  }

  /** The first reason why the viewer may not do this on all of these queues, or null if they may. */
  refuseAny(right: Right, queues: Iterable<string>): string | null {
    if (this.refuse(right) === null) return null;
    const all = new Set(queues);
    if (!all.size) return this.refuseAll(right);
    for (const queue of all) {
      const reason = this.refuse(right, queue);
      if (reason) return reason;
    }
    return null;
  }

  /** Returns why the viewer may not do this on any queue at all. The server leaves out the others. */
  refuseAll(right: Right): string | null {
    const grants = this.current?.grants ?? [];
    return grants.some((grant) => !grant.startsWith("-") && names(grant, right)) ? null : this.refuse(right);
  }

  /** Returns why the viewer may not do this, or null if they may. */
  refuse(right: Right, queue = "*"): string | null {
    const grants = this.current?.grants ?? [];
    const fitting = grants.filter((grant) => matches(grant, right, queue));
    if (fitting.length && !fitting.some((grant) => grant.startsWith("-"))) return null;
    return `Your key may not ${PHRASES[right]}${queue === "*" ? "" : ` queue ${queue}`}. Ask an administrator for the right “${right}”.`;
  }
}

function names(grant: string, right: Right): boolean {
  const [name = ""] = grant.slice(grant.startsWith("-") ? 1 : 0).split(":", 1);
  return name === right || (name === "*" && right !== "shell");
}

function matches(grant: string, right: Right, queue: string): boolean {
  const denies = grant.startsWith("-");
  const [, pattern = "*"] = grant.slice(denies ? 1 : 0).split(":", 2);
  if (!names(grant, right)) return false;
  if (queue === "*") return denies || pattern === "*";
  return glob(pattern, queue);
}

export function glob(pattern: string, text: string): boolean {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp(`^${escaped}$`, "s").test(text);
}

export const session = new SessionState();
