import { weeksOf } from "../../parts/month";
import { months } from "../../time";
import { datedText } from "./days";

/** Twelve months of a year. The days that are left out are marked, today is framed. */
export function Year({ year, dates, today }: { year: number; dates: Set<string>; today: string }) {
  return (
    <div class="year">
      {months.map((name, m) => {
        const month = `${year}-${String(m + 1).padStart(2, "0")}`;
        const weeks = weeksOf(month).filter((w) => w.some((d) => d.startsWith(month)));
        return (
          <table key={month} aria-label={`${name} ${year}`}>
            <caption>{name}</caption>
            <thead>
              <tr>
                {["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"].map((d) => (
                  <th key={d} scope="col">
                    {d}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {weeks.map((week) => (
                <tr key={week[0]}>
                  {week.map((day) => {
                    if (!day.startsWith(month)) return <td key={day} />;
                    const off = dates.has(day);
                    return (
                      <td key={day} class={`num ${off ? "off" : ""} ${day === today ? "today" : ""}`} title={off ? `${datedText(day)}: left out` : undefined}>
                        {Number(day.slice(8))}
                        {off && <span class="hidden"> left out</span>}
                      </td>
                    );
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        );
      })}
    </div>
  );
}
