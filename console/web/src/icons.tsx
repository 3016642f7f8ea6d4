const paths: Record<string, string> = {
  overview: "M2 9h4V2H2zM2 14h4v-2.5H2zM10 14h4V7h-4zM10 4.5h4V2h-4z",
  forecast: "M2 12l3.5-4 3 2.5L14 4M10.5 4H14v3.5",
  schedules: "M2.5 3.5h11v10h-11zM2.5 6.5h11M5.5 2v3M10.5 2v3",
  subjects: "M8 7.5a2.75 2.75 0 100-5.5 2.75 2.75 0 000 5.5zM2.5 14c.4-3 2.6-4.5 5.5-4.5s5.1 1.5 5.5 4.5",
  workflows: "M2 4h4v3H2zM10 9h4v3h-4zM6 5.5h2.5v5H10",
  ticks: "M8 14A6 6 0 108 2a6 6 0 000 12zM8 4.5V8l2.5 1.5",
  dead: "M8 2l6 11H2zM8 6.5V9M8 11v.1",
  endpoints: "M6 10L10 6M7 4.5l1.6-1.6a3 3 0 014.3 4.3L11.4 9M9 11.5l-1.6 1.6a3 3 0 01-4.3-4.3L4.6 7",
  calendars: "M2.5 3.5h11v10h-11zM2.5 6.5h11M5 9h.1M8 9h.1M11 9h.1M5 11.5h.1M8 11.5h.1",
  zones: "M8 14A6 6 0 108 2a6 6 0 000 12zM2 8h12M8 2c2 2 2.5 4 2.5 6S10 12 8 14C6 12 5.500 10 5.500 8S6 4 8 2",
  operations: "M3 4h10M3 8h10M3 12h6",
  audit: "M4 2h6l3 3v9H4zM6.500 7.500h4M6.500 10.500h4",
  usage: "M3 14V9M8 14V3M13 14V6",
  settings: "M2 4.500h7M12 4.500h2M2 11.500h2M7 11.500h7M10.500 6a1.500 1.500 0 100-3 1.500 1.500 0 000 3zM5.500 13a1.500 1.500 0 100-3 1.500 1.500 0 000 3z",
  platform: "M2.500 3h11v4h-11zM2.500 9h11v4h-11zM5 5h.1M5 11h.1",
  search: "M7 12A5 5 0 107 2a5 5 0 000 10zM10.700 10.700L14 14",
  user: "M8 7.500a2.750 2.750 0 100-5.500 2.750 2.750 0 000 5.500zM2.500 14c.4-3 2.600-4.500 5.500-4.500s5.100 1.500 5.500 4.500",
  live: "M5 3.500l7 4.500-7 4.500z",
  pause: "M5 3v10M11 3v10",
  bell: "M8 2v1M4 11V7.500a4 4 0 018 0V11l1.500 1.500h-11zM6.500 14h3",
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
};

/** An icon in the colour of its text. It says nothing to a screen reader: a text beside it does. */
export const Icon = ({ name }: { name: string }) => (
  <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
    <path d={paths[name] ?? paths.ticks} />
  </svg>
);
