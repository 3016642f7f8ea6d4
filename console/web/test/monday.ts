/** The date, by the clock of a zone, of this week's Monday, or of the day that follows it by some days. */
export function monday(zone: string, days: number): string {
  const today = new Date(`${new Date().toLocaleDateString("sv", { timeZone: zone })}T00:00:00Z`);
  return new Date(today.getTime() + (1 - (today.getUTCDay() || 7) + days) * 86_400_000).toISOString().slice(0, 10);
}
