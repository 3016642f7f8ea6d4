import type { Answer } from "../../call";
import "../../charts/heat.css";
import { shade } from "../../charts/shade";
import { many } from "../../parts/basic";
import { chosen, lasting, wall } from "../../time";
import { lateness } from "./late";

/** How late the ticks of the last hour were handed out, by five minutes. */
export function Lateness({ of: s }: { of: Answer<"/v1/admin/series"> }) {
  const { bounds, columns } = lateness(s.buckets);
  if (bounds.length === 0) return null;
  const top = Math.max(...columns.flatMap((c) => c.counts));
  const zone = chosen();
  return (
    <div class="scroll" role="region" aria-label="Lateness of the last hour" tabIndex={0}>
      <table class="heat lateness" aria-label={`Ticks by lateness and by five minutes, by the clock of ${zone}`}>
        <thead>
          <tr>
            <th scope="col">late</th>
            {columns.map((c) => (
              <th scope="col" key={c.at}>
                {wall(Date.parse(c.at), zone).slice(11)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {bounds.map((bound, row) => (
            <tr key={String(bound)}>
              <th scope="row">{bound === null ? "more" : `≤ ${lasting(bound)}`}</th>
              {columns.map((c) => (
                <td key={c.at} class={`num shade${shade(c.counts[row], top)}`}>
                  {c.counts[row] > 0 && many(c.counts[row])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
