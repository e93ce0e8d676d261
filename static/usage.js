// The chart of the usage page: stacked bars. The table below it says the same without script.
(() => {
  const element = document.querySelector("[data-usage-chart]");
  if (!element) return;
  const chart = JSON.parse(element.dataset.usageChart);
  const COLOURS = 7;
  const HEIGHT = 260;
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const dollars = new Intl.NumberFormat("en", { style: "currency", currency: "USD", maximumSignificantDigits: 4 });
  const shown = (value) => (chart.unit === "dollars" ? dollars.format(value) : whole.format(value));
  const onAxis = (value) => (chart.unit === "dollars" ? dollars.format(value) : compact.format(value));

  // Bars are drawn one before the other, the highest first: each as high as its series and all below it.
  const sums = [];
  chart.series.forEach((series, number) => {
    sums.push(series.values.map((value, index) => value + (number ? sums[number - 1][index] : 0)));
  });
  const order = chart.series.map((_, number) => number).reverse();
  const places = chart.labels.map((_, index) => index);

  const build = () => {
    const ink = style("--ink-soft"), line = style("--line");
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
    const step = Math.ceil(chart.labels.length / Math.max(3, Math.floor(element.clientWidth / 64)));
    return new uPlot({
      width: element.clientWidth,
      height: HEIGHT,
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: [-0.6, places.length - 0.4] }, y: { range: (_, low, high) => [Math.min(0, low), Math.max(high, 0) || 1] } },
      axes: [
        { ...axis, grid: { show: false }, splits: () => places.filter((place) => place % step === 0), values: (_, splits) => splits.map((place) => chart.labels[place] ?? "") },
        { ...axis, size: 64, values: (_, splits) => splits.map(onAxis) },
      ],
      series: [
        { label: "Time", value: (_, place) => chart.titles[place] ?? "–" },
        ...order.map((number) => ({
          label: chart.series[number].label,
          fill: style(`--chart-${(number % COLOURS) + 1}`),
          stroke: style(`--chart-${(number % COLOURS) + 1}`),
          width: 0,
          points: { show: false },
          paths: uPlot.paths.bars({ size: [0.7, 48] }),
          value: (_, value, series, index) => (index == null ? "–" : shown(chart.series[number].values[index])),
        })),
      ],
    }, [places, ...order.map((number) => sums[number])], element);
  };

  let plot = build();
  const again = () => { plot.destroy(); plot = build(); };
  new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  let width = element.clientWidth;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    again();
  }).observe(element);
})();
