// A dashboard's JSON, drawn with Grafana's own panel parts. `?dashboard=UID&theme=dark&pod=…&to=…`
import { createTheme, ThemeContext } from "@grafana/data";
import { initPluginTranslations } from "@grafana/i18n";
import { GlobalStyles } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import { useMemo, useRef } from "react";
import { Panel } from "./panel.jsx";
import { events, timeRange } from "./query.js";
import { register } from "./registry.js";

const CELL = 30;
const GAP = 8;
const asked = new URLSearchParams(window.location.search);

function variablesOf(dashboard) {
  const queries = dashboard.templating.list.filter(({ type }) => type === "query");
  return Object.fromEntries(queries.map(({ name, allValue }) => [name, asked.get(name) ?? allValue]));
}

function rangeOf(dashboard) {
  return timeRange({ from: asked.get("from") ?? dashboard.time.from, to: asked.get("to") ?? dashboard.time.to });
}

function Dashboard({ dashboard, annotations, width }) {
  const left = useRef(dashboard.panels.filter((panel) => panel.type !== "row").length);
  const variables = useMemo(() => variablesOf(dashboard), []);
  const range = useMemo(() => rangeOf(dashboard), []);
  const done = () => {
    left.current -= 1;
    if (left.current === 0) setTimeout(() => (window.previewReady = true), 700);
  };
  const column = width / 24;
  const bottom = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return (
    <div style={{ position: "relative", width, height: bottom * (CELL + GAP), margin: "0 12px" }}>
      {dashboard.panels.map((panel) => {
        const { x, y, w, h } = panel.gridPos;
        const place = { position: "absolute", left: x * column, top: y * (CELL + GAP) };
        if (panel.type === "row") return <h4 key={panel.id} style={{ ...place, margin: "8px 4px" }}>⌄ {panel.title}</h4>;
        return (
          <div key={panel.id} style={place}>
            <Panel panel={panel} variables={variables} range={range} width={w * column - GAP} height={h * (CELL + GAP) - GAP} annotations={annotations} done={done} />
          </div>
        );
      })}
    </div>
  );
}

async function main() {
  register();
  await initPluginTranslations("grafana");
  const dashboard = await (await fetch(`/dashboards/${asked.get("dashboard")}.json`)).json();
  const annotations = await Promise.all(
    dashboard.annotations.list.map(async (one) => ({ colour: one.iconColor, spans: await events(one, variablesOf(dashboard), rangeOf(dashboard)) })),
  );
  const theme = createTheme({ colors: { mode: asked.get("theme") ?? "dark" } });
  createRoot(document.getElementById("root")).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary, paddingTop: 4, minHeight: "100vh" }}>
        <h3 style={{ margin: "8px 16px" }}>{dashboard.title}</h3>
        <Dashboard dashboard={dashboard} annotations={annotations} width={window.innerWidth - 24} />
      </div>
    </ThemeContext.Provider>,
  );
}

main();
