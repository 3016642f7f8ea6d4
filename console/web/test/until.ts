/** Waits for a condition. */
export async function until(holds: () => boolean | Promise<boolean>, ms: number, what: string): Promise<void> {
  const end = Date.now() + ms;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

/** Asks a server, up to ten more times while its answer says that it cannot answer now: then it has changed nothing. */
export async function asked<Answer>(ask: () => Promise<Answer>, later: (answer: Answer) => boolean): Promise<Answer> {
  for (let again = 10; ; again--) {
    const answer = await ask();
    if (again === 0 || !later(answer)) return answer;
    await new Promise((done) => setTimeout(done, 1000));
  }
}
