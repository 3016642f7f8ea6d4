import { useState } from "preact/hooks";
import { type Got, Problem } from "../call";

/** Under which condition something is stored. */
export interface Condition {
  ifMatch?: string;
  ifNoneMatch?: string;
}

/**
 * Saves what was read with an entity tag; "" makes something new. If somebody else was faster, the server refuses the first attempt: rival is then
 * what they stored, and the next attempt replaces it.
 */
export function useRival<T>(etag: string, again: () => Promise<Got<T>>) {
  const [rival, meet] = useState<Got<T> | null>(null);
  const save = async <A>(put: (condition: Condition) => Promise<A>): Promise<A> => {
    const match = rival?.etag ?? etag;
    try {
      return await put(match ? { ifMatch: match } : { ifNoneMatch: "*" });
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 412) throw error;
      meet(await again());
      const words = match ? "Somebody changed it since you began. Look at both changes; saving again replaces theirs." : "One of that name exists already. Look at it; saving again replaces it.";
      throw new Problem(412, error.code, words, error.requestId);
    }
  };
  return { rival, save };
}
