import { complaint, Field } from "./basic";

type Group = "policy" | "delivery";

export type PoliciesOf = Record<Group, Record<string, unknown>>;

const choices: { group: Group; name: string; label: string; values?: string[]; number?: boolean }[] = [
  { group: "policy", name: "overlap", label: "While the one before still runs", values: ["skip", "buffer_one", "buffer_all", "cancel_other", "allow_all"] },
  { group: "policy", name: "missed", label: "Times that passed while nothing could fire", values: ["last", "all", "none"] },
  { group: "policy", name: "max_lateness", label: "Too late after" },
  { group: "policy", name: "on_expired", label: "When it is too late", values: ["skip", "deliver"] },
  { group: "policy", name: "pause_after_failures", label: "Pause after failures in a row", number: true },
  { group: "delivery", name: "timeout", label: "One attempt may take" },
  { group: "delivery", name: "max_attempts", label: "Attempts at most", number: true },
  { group: "delivery", name: "priority", label: "Priority, 1 first", values: ["1", "2", "3", "4"], number: true },
  { group: "delivery", name: "queue", label: "Queue" },
];

interface Props {
  of: PoliciesOf;
  onChange: (part: Partial<PoliciesOf>) => void;
  error: unknown;
  /** What holds where nothing is chosen, in words. */
  unset: string;
  /** The pointer of what has policy and delivery in it. */
  at?: string;
}

/** The policies and the delivery of a schedule, or those that its workflow gives it. What is empty is left out. */
export function Policies({ of, onChange, error, unset, at = "" }: Props) {
  const set = (group: Group, name: string, value: string, number?: boolean) => {
    const { [name]: _old, ...rest } = of[group];
    onChange({ [group]: value ? { ...rest, [name]: number ? Number(value) : value } : rest });
  };
  return (
    <div class="two">
      {choices.map(({ group, name, label, values, number }) => {
        const value = String(of[group][name] ?? "");
        return (
          <Field key={name} label={label} wrong={complaint(error, `${at}/${group}/${name}`)}>
            {(p) =>
              values ? (
                <select {...p} value={value} onChange={(e) => set(group, name, e.currentTarget.value, number)}>
                  <option value="">{unset}</option>
                  {values.map((v) => (
                    <option key={v}>{v}</option>
                  ))}
                </select>
              ) : (
                <input {...p} value={value} inputMode={number ? "numeric" : undefined} placeholder={unset} spellcheck={false} onInput={(e) => set(group, name, e.currentTarget.value, number)} />
              )
            }
          </Field>
        );
      })}
    </div>
  );
}
