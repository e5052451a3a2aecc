// node shoot.mjs PROMETHEUS_URL OUT_DIR SUFFIX [dashboard …]: one picture of each dashboard, whole length.
// Exits 1 when a panel failed to draw; names the panels that had nothing to show.
import { createReadStream, existsSync, mkdirSync } from "node:fs";
import { createServer, request } from "node:http";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const dashboards = process.env.DASHBOARDS ?? join(here, "..", "dashboards");
const [prometheus, out, suffix, ...names] = process.argv.slice(2);
const wanted = names.length ? names : ["vllm-headroom-engine", "vllm-headroom-fleet", "vllm-headroom-quality"];
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json" };
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const server = createServer((incoming, response) => {
  const path = incoming.url.split("?")[0];
  if (path.startsWith("/prometheus/")) {
    const url = prometheus + incoming.url.slice("/prometheus".length);
    request(url, (answer) => {
      response.writeHead(answer.statusCode, { "content-type": "application/json" });
      answer.pipe(response);
    }).end();
    return;
  }
  const file = path.startsWith("/dashboards/") ? join(dashboards, path.slice("/dashboards/".length)) : join(here, "dist", path === "/" ? "index.html" : path);
  if (!existsSync(file)) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" });
  createReadStream(file).pipe(response);
});

await new Promise((done) => server.listen(0, "127.0.0.1", done));
const base = `http://127.0.0.1:${server.address().port}`;
mkdirSync(out, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
let failed = 0;
for (const name of wanted) {
  const page = await browser.newPage({ viewport: { width: 1600, height: 1000 } });
  page.on("pageerror", (error) => console.error(`${name}: ${error}`));
  await page.goto(`${base}/?dashboard=${name}&${process.env.PARAMETERS ?? ""}`);
  await page.waitForFunction("window.previewReady === true", null, { timeout: 120000 });
  const file = join(out, `dashboard-${name.replace("vllm-headroom-", "")}-${suffix}.png`);
  await page.screenshot({ path: file, fullPage: true });
  const empty = await page.$$eval("[data-empty]", (found) => found.map((one) => one.dataset.empty));
  const errors = await page.$$eval(".preview-error", (found) => found.map((one) => one.textContent));
  failed += errors.length;
  console.log(JSON.stringify({ file, empty, errors }));
  await page.close();
}
await browser.close();
server.close();
process.exit(failed ? 1 : 0);
