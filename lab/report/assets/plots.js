// Curves of any metric as SVG: over steps, tokens or time, smoothed, and as a mean with its band where seeds repeat.
const view = { x: 'step', smooth: 0, metric: '', all: false };
const { left, right, top: upper, bottom, width, height } = index.geometry;
let columnsOfRuns = null;
const columns = () => (columnsOfRuns ||= JSON.parse($('metrics').textContent));

const svgNode = (tag, properties, ...children) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(properties)) if (value != null) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

/** The points of a metric of a run: x, value, low, high, step. */
function pointsOf(run, metric) {
  const found = columns()[run], values = found?.values[metric] || [];
  const x = found?.[{ step: 'step', tokens: 'tokens', time: 'seconds' }[view.x]];
  const ends = metric === index.heldOut && !view.smooth ? found.ends : [];
  const points = [];
  let mean = 0, weight = 0;
  values.forEach((value, at) => {
    if (value === null) return;
    mean = view.smooth * mean + (1 - view.smooth) * value;
    weight = view.smooth * weight + (1 - view.smooth);
    points.push([x[at], mean / weight, ends[at]?.[0] ?? null, ends[at]?.[1] ?? null, found.step[at]]);
  });
  return points;
}

/** The mean of several runs at the steps that all of them have, with one standard deviation over the runs. */
function meanOf(series) {
  const rest = series.slice(1).map((points) => new Map(points.map((point) => [point[4], point])));
  return series[0].flatMap((point) => {
    const same = [point, ...rest.map((one) => one.get(point[4]))];
    if (same.includes(undefined)) return [];
    const mean = (place) => same.reduce((sum, one) => sum + one[place], 0) / same.length;
    const y = mean(1), spread = Math.sqrt(same.reduce((sum, one) => sum + (one[1] - y) ** 2, 0) / (same.length - 1));
    return [[mean(0), y, y - spread, y + spread, point[4]]];
  });
}

/** The lines of a chart: of every run, and of every variant that several runs repeat the mean. */
function linesOf(chart) {
  return index.variants.flatMap((variant, colour) => Object.entries(chart.lines).flatMap(([name, metric]) => {
    const single = variant.runs.map((run) => ({ run, points: pointsOf(run, metric) })).filter((one) => one.points.length);
    const several = single.length > 1;
    const lines = single.map(({ run, points }) => ({ name, colour, points, label: index.runs[run], thin: several }));
    return several ? [...lines, { name, colour, points: meanOf(single.map((one) => one.points)), label: `${variant.label}, mean` }] : lines;
  })).filter((line) => line.points.length);
}

/** Round numbers around two different ones. */
function ticks(low, high, most = 4, least = 0) {
  const size = 10 ** Math.floor(Math.log10((high - low) / most));
  for (const one of [1, 2, 2.5, 5, 10, 20]) {
    const wide = Math.max(least, one * size), first = Math.floor(low / wide + 1e-9), last = Math.ceil(high / wide - 1e-9);
    if (last - first <= most && (!least || Number.isInteger(wide))) return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * wide);
  }
  return [low, high];
}

function scales(chart, lines) {
  const points = lines.flatMap((line) => line.points), values = lines.flatMap((line) => line.points.flatMap((point) => point.slice(1, line.thin ? 2 : 4))).filter((one) => one !== null);
  const xs = points.map((point) => point[0]);
  const first = xs.reduce((a, b) => Math.min(a, b)), last = Math.max(xs.reduce((a, b) => Math.max(a, b)), first + 1);
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  const log = chart.log && low > 0 && high > 50 * low;
  let marks;
  if (chart.percent) marks = [0, 0.25, 0.5, 0.75, 1];
  else if (log) {
    const begin = Math.floor(Math.log10(low)), end = Math.ceil(Math.log10(high)), wide = Math.ceil((end - begin) / 4);
    marks = Array.from({ length: Math.ceil((end - begin) / wide) + 1 }, (_, at) => 10 ** (begin + at * wide));
  } else {
    if (high - low < 0.02 * Math.abs(high)) [low, high] = [low - 0.1 * Math.abs(low), high + 0.1 * Math.abs(high)];
    else if (low >= 0 && low < 0.6 * high) low = 0;
    marks = ticks(low, high > low ? high : low + 1);
  }
  const scale = log ? Math.log : (value) => value, begin = scale(marks[0]), end = scale(marks.at(-1));
  return {
    first, last, marks, log,
    steps: ticks(first, last, 5, view.x === 'step' ? 1 : 0).filter((one) => one >= first && one <= last),
    x: (value) => left + (right - left) * (value - first) / (last - first),
    y: (value) => bottom - (bottom - upper) * Math.min(1, Math.max(0, (scale(value) - begin) / (end - begin))),
  };
}

const brief = (value) => (Math.abs(value) >= 1e9 ? `${number(value / 1e9)}G` : Math.abs(value) >= 1e6 ? `${number(value / 1e6)}M` : Math.abs(value) >= 1e4 ? `${number(value / 1e3)}k` : number(value));
const ofAxis = (value) => (view.x === 'step' ? String(Math.round(value)) : view.x === 'tokens' ? brief(value) : value >= 7200 ? `${number(value / 3600)} h` : value >= 120 ? `${number(value / 60)} min` : `${number(value)} s`);
const ofChart = (chart, value) => (chart.percent ? `${(100 * value).toFixed(1)} %` : number(value));

/** The SVG of a chart, with the lines and places that the pointer needs; null where no run has a value. */
function plot(chart) {
  const lines = linesOf(chart);
  if (!lines.length) return null;
  const at = scales(chart, lines), place = (value) => value.toFixed(1);
  const line = (one) => {
    const band = one.thin ? [] : one.points.filter((point) => point[2] !== null);
    const d = `M${one.points.map((point) => `${place(at.x(point[0]))} ${place(at.y(point[1]))}`).join('L')}`;
    const round = [...band.map((point) => [point[0], point[3]]), ...band.reverse().map((point) => [point[0], point[2]])];
    const dots = one.points.length === 1 || (one.name === 'held-out' && one.points.length <= 40 && !one.thin) ? one.points : [];
    const kind = `line ${one.name}${one.thin ? ' thin' : ''}${index.runs.length > 1 ? ` run-${one.colour % 6}` : ''}`;
    return svgNode('g', { class: kind },
      ...(band.length > 1 ? [svgNode('polygon', { points: round.map(([x, y]) => `${place(at.x(x))},${place(at.y(y))}`).join(' ') })] : []),
      svgNode('path', { d }), ...dots.map((point) => svgNode('circle', { cx: at.x(point[0]), cy: at.y(point[1]), r: 2.6 })));
  };
  const first = columns()[0], axis = first[{ step: 'step', tokens: 'tokens', time: 'seconds' }[view.x]];
  const flags = (chart.marks || []).map(([count, step, level, here]) => {
    const x = at.x(axis[Math.max(0, first.step.findIndex((one) => one >= step))]);
    return svgNode('g', { class: `mark ${level}${here ? ' here' : ''}` }, svgNode('line', { x1: x, x2: x, y1: upper - 6, y2: bottom }),
      svgNode('circle', { cx: x, cy: upper - 10, r: 7 }), svgNode('text', { x, y: upper - 6.5, 'text-anchor': 'middle' }, String(count)));
  });
  const order = [...lines].sort((a, b) => (a.thin ? 0 : 1) - (b.thin ? 0 : 1) || (a.name < b.name ? 1 : -1));
  const svg = svgNode('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', tabindex: 0, 'aria-label': `${chart.title}; the arrow keys show its values` },
    ...at.marks.flatMap((value) => [svgNode('line', { class: 'grid', x1: left, x2: right, y1: at.y(value), y2: at.y(value) }),
      svgNode('text', { class: 'tick', x: left - 6, y: at.y(value) + 3.5, 'text-anchor': 'end' }, chart.percent ? `${Math.round(100 * value)}%` : brief(value))]),
    ...at.steps.map((value) => svgNode('text', { class: 'tick', x: at.x(value), y: bottom + 15, 'text-anchor': 'middle' }, ofAxis(value))),
    ...flags, ...order.map(line));
  return { svg, lines, at };
}
