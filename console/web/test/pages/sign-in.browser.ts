import { looksWell, useBrowser } from "../browser";

useBrowser();
looksWell("sign-in", "/sign-in", "API key or token", undefined, "");
