// One panel: its data, and the part of @grafana/ui that Grafana itself would draw it with.
import { applyFieldOverrides, cacheFieldDisplayNames, getFieldDisplayValues, transformDataFrame } from "@grafana/data";
import { BarGauge, BigValue, PanelChrome, TimeSeries, VizRepeater, useTheme2 } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { useEffect, useLayoutEffect, useState } from "react";
import { lastValueFrom } from "rxjs";
import { framesOf } from "./query.js";
import { registry } from "./registry.js";

const replace = (text) => text;

function shaped(panel, frames, theme) {
  const fieldConfig = structuredClone(panel.fieldConfig);
  fieldConfig.defaults.thresholds.steps.forEach((step) => (step.value = step.value ?? -Infinity));
  for (const override of fieldConfig.overrides)
    for (const property of override.properties)
      if (property.id === "thresholds") property.value.steps.forEach((step) => (step.value = step.value ?? -Infinity));
  const data = applyFieldOverrides({ data: frames, fieldConfig, replaceVariables: replace, theme, fieldConfigRegistry: registry, timeZone: "browser" });
  cacheFieldDisplayNames(data);
  return { data, fieldConfig };
}

function Empty({ panel, width, height }) {
  const text = panel.fieldConfig.defaults.noValue ?? "No data";
  return (
    <div className="preview-empty" data-empty={text} style={{ width, height, display: "grid", placeItems: "center", opacity: 0.65, textAlign: "center" }}>
      {text}
    </div>
  );
}

function Values({ panel, frames, width, height, theme, one }) {
  const { data, fieldConfig } = shaped(panel, frames, theme);
  const values = getFieldDisplayValues({
    fieldConfig, reduceOptions: panel.options.reduceOptions, replaceVariables: replace, theme, data, timeZone: "browser",
    sparkline: panel.type === "stat" && panel.options.graphMode !== "none",
  });
  const horizontal = panel.type === "bargauge";
  return (
    <VizRepeater
      getValues={() => values} renderValue={one} width={width} height={height} source={frames} renderCounter={0} autoGrid={!horizontal}
      orientation={horizontal ? "horizontal" : "auto"} itemSpacing={horizontal ? 6 : 3} minVizHeight={horizontal ? 16 : 0} maxVizHeight={horizontal ? 300 : undefined}
    />
  );
}

// Annotations as Grafana draws them: a faint region, and a line along the bottom.
function Events({ config, annotations, theme }) {
  useLayoutEffect(() => {
    config.addHook("drawClear", (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      for (const { colour, spans } of annotations) {
        ctx.fillStyle = theme.visualization.getColorByName(colour);
        for (const [from, to] of spans) {
          const left = Math.max(plot.valToPos(from, "x", true), bbox.left);
          const width = Math.min(plot.valToPos(to, "x", true), bbox.left + bbox.width) - left;
          ctx.globalAlpha = 0.07;
          ctx.fillRect(left, bbox.top, width, bbox.height);
          ctx.globalAlpha = 0.9;
          ctx.fillRect(left, bbox.top + bbox.height - 3 * devicePixelRatio, width, 3 * devicePixelRatio);
        }
      }
      ctx.restore();
    });
  }, [config]);
  return null;
}

const drawers = {
  stat: (props) => (
    <Values {...props} one={({ value, width, height, count }) => (
      <BigValue
        value={value.display} sparkline={value.sparkline} width={width} height={height} count={count} theme={props.theme} colorMode={props.panel.options.colorMode}
        graphMode={props.panel.options.graphMode} text={props.panel.options.text} justifyMode={props.panel.options.justifyMode} textMode={count > 1 && props.panel.options.textMode === "auto" ? "value_and_name" : props.panel.options.textMode}
        wideLayout={props.panel.options.wideLayout}
      />
    )} />
  ),
  bargauge: (props) => (
    <Values {...props} one={({ value, width, height }) => (
      <BarGauge
        value={value.display} field={value.field} display={value.view?.getFieldDisplayProcessor(value.colIndex)} width={width} height={height} theme={props.theme}
        orientation="horizontal" displayMode={props.panel.options.displayMode} showUnfilled valueDisplayMode={props.panel.options.valueMode} namePlacement={props.panel.options.namePlacement}
      />
    )} />
  ),
  timeseries: ({ panel, frames, range, width, height, theme, annotations }) => (
    <TimeSeries frames={shaped(panel, frames, theme).data} timeRange={range} timeZone="browser" width={width} height={height} legend={panel.options.legend} options={panel.options}>
      {(config) => <Events config={config} annotations={annotations} theme={theme} />}
    </TimeSeries>
  ),
  table: ({ panel, frames, width, height, theme }) => (
    <TableNG data={shaped(panel, frames, theme).data[0]} width={width} height={height} sortBy={panel.options.sortBy} cellHeight="sm" structureRev={1} />
  ),
};

export function Panel({ panel, variables, range, width, height, annotations, done }) {
  const theme = useTheme2();
  const [state, setState] = useState({});
  useEffect(() => {
    (async () => {
      try {
        const found = await framesOf(panel, variables, range, width);
        const frames = panel.transformations ? await lastValueFrom(transformDataFrame(panel.transformations, found.frames)) : found.frames;
        setState({ frames, range: found.range });
      } catch (error) {
        setState({ error: String(error) });
      }
      done();
    })();
  }, []);
  const { frames, error } = state;
  return (
    <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
      {(innerWidth, innerHeight) => {
        if (error) return <div className="preview-error" style={{ color: "red" }}>{error}</div>;
        if (!frames) return null;
        if (!frames.some((frame) => frame.length > 0)) return <Empty panel={panel} width={innerWidth} height={innerHeight} />;
        return drawers[panel.type]({ panel, frames, range: state.range, width: innerWidth, height: innerHeight, theme, annotations });
      }}
    </PanelChrome>
  );
}
