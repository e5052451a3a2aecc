// What Grafana does between a panel's query and its data frames, for Prometheus alone.
import { FieldType, dateMath, rangeUtil, toDataFrame } from "@grafana/data";

const SCRAPE_SECONDS = 5;

export function timeRange(raw) {
  return { from: dateMath.parse(raw.from), to: dateMath.parse(raw.to, true), raw };
}

export function panelRange(panel, range) {
  if (!panel.timeFrom) return range;
  const said = rangeUtil.describeTextRange(panel.timeFrom);
  return timeRange({ from: said.from, to: said.to });
}

export function stepOf(range, pixels) {
  const seconds = (range.to.valueOf() - range.from.valueOf()) / 1000;
  return Math.max(SCRAPE_SECONDS, Math.ceil(seconds / Math.max(pixels, 100) / SCRAPE_SECONDS) * SCRAPE_SECONDS);
}

export function interpolate(text, variables, range, step) {
  const seconds = Math.round((range.to.valueOf() - range.from.valueOf()) / 1000);
  const builtIn = { __rate_interval: `${Math.max(4 * SCRAPE_SECONDS, step + SCRAPE_SECONDS)}s`, __range: `${seconds}s`, __interval: `${step}s` };
  return text.replace(/\$\{?(\w+)\}?/g, (all, name) => builtIn[name] ?? variables[name] ?? all);
}

async function ask(path, parameters) {
  const response = await fetch(`/prometheus/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const body = await response.json();
  if (body.status !== "success") throw new Error(`${body.error}: ${parameters.query}`);
  return body.data.result;
}

function legend(format, labels) {
  if (format === "__auto") return Object.values(labels)[0] ?? "Value";
  return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? "").trim();
}

// One frame for each series; absent samples become gaps, as Grafana's data source makes them.
function series(target, { metric, values }, step, range) {
  const found = new Map(values.map(([time, value]) => [time, Number(value)]));
  const times = [];
  const numbers = [];
  for (let time = range.start; time <= range.end; time += step) {
    times.push(time * 1000);
    numbers.push(found.get(time) ?? null);
  }
  const { __name__: _, ...labels } = metric;
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: "Time", type: FieldType.time, values: times },
      { name: "Value", type: FieldType.number, values: numbers, labels, config: { displayNameFromDS: legend(target.legendFormat, metric) } },
    ],
  });
}

function table(target, results) {
  const names = [...new Set(results.flatMap(({ metric }) => Object.keys(metric)))].filter((name) => name !== "__name__").sort();
  const fields = [{ name: "Time", type: FieldType.time, values: results.map(({ value }) => value[0] * 1000) }];
  for (const name of names) fields.push({ name, type: FieldType.string, values: results.map(({ metric }) => metric[name] ?? "") });
  fields.push({ name: `Value #${target.refId}`, type: FieldType.number, values: results.map(({ value }) => Number(value[1])) });
  return toDataFrame({ refId: target.refId, fields });
}

export async function framesOf(panel, variables, dashboardRange, pixels) {
  const range = panelRange(panel, dashboardRange);
  const step = stepOf(range, pixels);
  const start = Math.floor(range.from.valueOf() / 1000 / step) * step;
  const end = Math.floor(range.to.valueOf() / 1000 / step) * step;
  const asked = panel.targets.map(async (target) => {
    const query = interpolate(target.expr, variables, dashboardRange, step);
    if (target.instant) {
      const results = await ask("query", { query, time: end });
      if (target.format === "table") return [table(target, results)];
      return results.map(({ metric, value }) => series(target, { metric, values: [[end, value[1]]] }, step, { start: end, end }));
    }
    const results = await ask("query_range", { query, start, end, step });
    return results.map((one) => series(target, one, step, { start, end }));
  });
  return { range, frames: (await Promise.all(asked)).flat() };
}

// The times at which a dashboard's annotation holds, as [from, to] in milliseconds.
export async function events(annotation, variables, range) {
  const step = stepOf(range, 600);
  const query = `count(${interpolate(annotation.expr, variables, range, step)})`;
  const [start, end] = [range.from, range.to].map((time) => Math.floor(time.valueOf() / 1000 / step) * step);
  const spans = [];
  for (const { values } of await ask("query_range", { query, start, end, step }))
    for (const [time] of values) {
      const last = spans.at(-1);
      if (last && time * 1000 <= last[1] + step * 1500) last[1] = time * 1000;
      else spans.push([time * 1000, time * 1000]);
    }
  return spans;
}
