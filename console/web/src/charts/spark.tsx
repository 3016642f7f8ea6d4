/** A small line without axes. The figure beside it is its text. */
export function Spark({ values }: { values: (number | null)[] }) {
  const top = Math.max(1, ...values.map((v) => v ?? 0));
  const step = 100 / Math.max(1, values.length - 1);
  let path = "";
  values.forEach((v, i) => {
    if (v !== null) path += `${path ? "L" : "M"}${(i * step).toFixed(2)} ${(27 - (v / top) * 25).toFixed(2)}`;
  });
  return (
    <svg class="spark" viewBox="0 0 100 28" preserveAspectRatio="none" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}
