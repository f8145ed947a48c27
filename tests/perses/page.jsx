// Perses' own view of a dashboard, and beside it what a test asks: what is drawn. The dashboard is
// the file next to this page that the address names (?file=…); the data source is who serves it.
import { createRoot } from "react-dom/client";
import { CssBaseline, ThemeProvider } from "@mui/material";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { getInstanceByDom } from "echarts/core";
import { QueryParamProvider } from "use-query-params";
import { WindowHistoryAdapter } from "use-query-params/adapters/window";
import {
  ChartsProvider, SnackbarProvider, generateChartsTheme, getTheme,
} from "@perses-dev/components";
import { ViewDashboard } from "@perses-dev/dashboards";
import * as panels from "@perses-dev/panels-plugin";
import panelsResource from "@perses-dev/panels-plugin/plugin.json";
import { PluginRegistry, dynamicImportPluginLoader } from "@perses-dev/plugin-system";
import * as prometheus from "@perses-dev/prometheus-plugin";
import prometheusResource from "@perses-dev/prometheus-plugin/plugin.json";

const address = new URLSearchParams(location.search);
const plugins = dynamicImportPluginLoader([
  { resource: panelsResource, importPlugin: async () => panels },
  { resource: prometheusResource, importPlugin: async () => prometheus },
]);
const kinds = { Panel: "TimeSeriesChart", TimeSeriesQuery: "PrometheusTimeSeriesQuery" };
const spec = { directUrl: location.origin, scrapeInterval: address.get("every") };
const source = {
  kind: "GlobalDatasource",
  metadata: { name: "prometheus" },
  spec: { default: true, plugin: { kind: "PrometheusDatasource", spec } },
};
const sources = {
  getDatasource: async () => undefined,
  getGlobalDatasource: async () => source,
  listDatasources: async () => [],
  listGlobalDatasources: async () => [source],
};
const client = new QueryClient({
  defaultOptions: { queries: { refetchOnWindowFocus: false, retry: false } },
});
const theme = getTheme("light");

function Page({ dashboard }) {
  return (
    <ThemeProvider theme={theme}>
      <CssBaseline />
      <ChartsProvider chartsTheme={generateChartsTheme(theme, {})}>
        <SnackbarProvider>
          <QueryClientProvider client={client}>
            <QueryParamProvider adapter={WindowHistoryAdapter}>
              <PluginRegistry pluginLoader={plugins} defaultPluginKinds={kinds}>
                <ViewDashboard dashboardResource={dashboard} datasourceApi={sources} isReadonly />
              </PluginRegistry>
            </QueryParamProvider>
          </QueryClientProvider>
        </SnackbarProvider>
      </ChartsProvider>
    </ThemeProvider>
  );
}

// of a chart: the name of each line or bar, and how many numbers of it are drawn
function lines(chart) {
  const { dataset = [], series = [] } = chart.getOption();
  const counted = (rows) => rows.filter((row) => Number.isFinite(row[1])).length;
  if (series.some((one) => one.type === "bar")) {
    return dataset[0].source.map((row) => [row[0], counted([row])]);
  }
  return series.map((one, index) => [one.name, counted(dataset[index].source)]);
}

// of each panel: its title, its text, what is wrong with it, and what its charts have drawn
window.drawn = () => [...document.querySelectorAll("[data-testid=panel]")].map((panel) => ({
  title: document.getElementById(panel.getAttribute("aria-labelledby")).textContent.trim(),
  text: panel.innerText.split("\n").filter((line) => line.trim()),
  wrong: panel.querySelector("[role=alert]")?.textContent ?? null,
  busy: panel.querySelector("[role=progressbar], [aria-label^=Loading]") !== null,
  lines: [...panel.querySelectorAll("[_echarts_instance_]")]
    .flatMap((one) => lines(getInstanceByDom(one))),
}));

const file = await fetch(address.get("file"));
createRoot(document.getElementById("root")).render(<Page dashboard={await file.json()} />);
