// Nothing leaves this host: no fonts, no telemetry, no proxy, no agent.
Scalar.createApiReference("#reference", {
  url: "/openapi.yaml",
  withDefaultFonts: false,
  telemetry: false,
  proxyUrl: "",
  agent: { disabled: true },
  mcp: { disabled: true },
  externalUrls: { dashboardUrl: "", registryUrl: "", proxyUrl: "", apiBaseUrl: "" },
  showDeveloperTools: "never",
  hideClientButton: true,
  persistAuth: false,
});
