// The field options that Grafana's panel plugins register; without them overrides are ignored.
import { FieldConfigOptionsRegistry, Registry, standardFieldConfigEditorRegistry, standardTransformers, standardTransformersRegistry } from "@grafana/data";

const STANDARD = ["unit", "min", "max", "decimals", "noValue", "displayName", "color", "thresholds", "mappings", "links"];
const CUSTOM = [
  "drawStyle", "lineInterpolation", "lineWidth", "lineStyle", "fillOpacity", "gradientMode", "showPoints", "spanNulls", "axisLabel",
  "axisPlacement", "axisSoftMax", "stacking", "thresholdsStyle", "align", "width", "cellOptions", "filterable",
];

const item = (path, isCustom) => ({
  id: isCustom ? `custom.${path}` : path,
  path,
  name: path,
  isCustom,
  process: (value) => value,
  override: () => null,
  editor: () => null,
  shouldApply: () => true,
});

export function register() {
  standardFieldConfigEditorRegistry.setInit(() => STANDARD.map((path) => item(path, false)));
  standardTransformersRegistry.setInit(() =>
    [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer, standardTransformers.sortByTransformer].map(
      (transformation) => ({ id: transformation.id, name: transformation.name, transformation: async () => transformation }),
    ),
  );
}

export const registry = new (FieldConfigOptionsRegistry ?? Registry)(() => [
  ...STANDARD.map((path) => item(path, false)),
  ...CUSTOM.map((path) => item(path, true)),
]);
