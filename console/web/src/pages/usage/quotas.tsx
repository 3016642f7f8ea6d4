import { read } from "../../call";
import { Await, Panel } from "../../parts/basic";
import { POLL, useQuery } from "../../query";
import "./style.css";

/** The quotas of the tenant, each with its limit and its use as a meter. */
export function Quotas() {
  const quotas = useQuery({ key: ["quotas"], fn: (signal) => read("/v1/quotas", { signal }), every: POLL });
  return (
    <Panel title="Quotas">
      <Await of={quotas}>
        {(q) => (
          <ul class="quotas">
            {Object.entries(q.quotas).map(([name, { limit, used, soft }]) => (
              <li key={name}>
                <span>{name.replaceAll("_", " ")}</span>
                <span class="num">
                  {used === null ? "" : `${Number(used).toLocaleString("en")} of `}
                  {Number(limit).toLocaleString("en")}
                  {soft && <span class="overdue"> four fifths are used</span>}
                </span>
                {used !== null && <meter max={Math.max(1, Number(limit))} value={Number(used)} high={Number(limit) * 0.8} optimum={0} aria-label={name.replaceAll("_", " ")} />}
              </li>
            ))}
          </ul>
        )}
      </Await>
    </Panel>
  );
}
