// This program is only compiled. It shows that the types that openapi-typescript makes of the document fit a request and its answer.
import type { components, operations, paths } from "./generated/api";

type Schedule = components["schemas"]["Schedule"];
type PutSchedule = paths["/v1/workflows/{workflow}/schedules/{key}"]["put"];
type Body = PutSchedule["requestBody"]["content"]["application/json"];
type Made = PutSchedule["responses"]["201"]["content"]["application/json"];
type Problem = components["schemas"]["Problem"];
type Query = NonNullable<operations["listSchedules"]["parameters"]["query"]>;

export async function putSchedule(url: string, token: string, workflow: string, key: string): Promise<Schedule> {
	const body: Body = { spec: { timezone: "America/New_York", cron: ["0 8 * * *"] }, payload: { from: "typescript" } };
	const answer = await fetch(`${url}/v1/workflows/${encodeURIComponent(workflow)}/schedules/${encodeURIComponent(key)}`, {
		method: "PUT",
		headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
		body: JSON.stringify(body),
	});
	if (!answer.ok) {
		const problem: Problem = await answer.json();
		const code: components["schemas"]["Code"] = problem.code;
		throw new Error(`${problem.status} ${code}: ${problem.detail}`);
	}
	const made: Made = await answer.json();
	const next: string | null = made.next_at;
	console.log(made.id, next, made.stats.fired + 1);
	return made;
}

export function query(limit: number): Query {
	return { workflow: "daily-digest", limit };
}
