// Reads a JSON list of custom resources on standard input; prints one line for each that its CRD's schema refuses.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const operator = "@kubernetes-models/prometheus-operator/monitoring.coreos.com";
const places = {
  "monitoring.coreos.com/v1": join(folder, "node_modules", operator, "v1", "index.js"),
  "monitoring.coreos.com/v1alpha1": join(folder, "node_modules", operator, "v1alpha1", "index.js"),
  "keda.sh/v1alpha1": join(folder, "node_modules/@kubernetes-models/keda/keda.sh/v1alpha1/index.js"),
};

for (const resource of JSON.parse(readFileSync(0, "utf8"))) {
  const models = await import(pathToFileURL(places[resource.apiVersion]));
  try {
    new models[resource.kind](resource).validate();
  } catch (error) {
    console.log(`${resource.kind} ${resource.metadata.name}: ${error.message}`);
  }
}
