// The panels: which metrics are shown, values under the pointer or the arrow keys, and the way to a step's trajectories.
const MOST_PANELS = 24;
let charts = index.charts, widened = MOST_PANELS;

const titled = (metric) => ({ title: metric, percent: false, log: true, lines: { training: metric }, marks: [] });

/** The metrics that were asked for, this package's own first; null where the page's own panels are meant. */
function metricsAsked() {
  const words = view.metric.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length && !view.all) return null;
  return index.metrics.filter((name) => words.every((word) => name.toLowerCase().includes(word)));
}

function drawPanels() {
  const asked = metricsAsked(), shownCharts = asked ? asked.slice(0, widened).map(titled) : charts;
  const panels = shownCharts.flatMap((chart) => {
    const made = plot(chart);
    if (!made) return [];
    const unit = [chart.unit, made.at.log && 'logarithmic'].filter(Boolean).join(', ');
    const figure = h('figure', { class: 'panel' }, h('figcaption', {}, ...shown(chart.title), ' ', h('span', {}, unit)), made.svg);
    watchPanel(figure, chart, made);
    return [figure];
  });
  if (asked && asked.length > widened) panels.push(h('button', { type: 'button', class: 'quiet', onclick: () => { widened *= 4; drawPanels(); } }, `${asked.length - widened} more metrics`));
  document.querySelector('.panels').replaceChildren(...panels);
  sayPlotted(asked ? Math.min(asked.length, widened) : null);
}

function sayPlotted(count) {
  const own = new Set(charts.flatMap((chart) => Object.values(chart.lines))).size;
  $('plotted').textContent = `${count ?? own} of ${index.metrics.length} metrics`;
  $('all-metrics').textContent = view.all ? 'main curves' : `all ${index.metrics.length}`;
}

let searching;

function change(what) {
  Object.assign(view, what);
  widened = MOST_PANELS;
  drawPanels();
  keepAddress();
}

/** The panels as they came need no drawing until they are looked at. */
function prepareCharts() {
  if (!charts.length) return;
  $('plots').hidden = false;
  $('axis').value = view.x;
  $('smooth').value = view.smooth;
  $('metric').value = view.metric;
  $('plots').addEventListener('submit', (event) => event.preventDefault());
  $('plots').addEventListener('input', () => {
    clearTimeout(searching);
    searching = setTimeout(() => change({ metric: $('metric').value, x: $('axis').value, smooth: Number($('smooth').value) }), 120);
  });
  $('all-metrics').addEventListener('click', () => change({ all: !view.all }));
  if (view.x !== 'step' || view.smooth || metricsAsked() || index.variants.length < index.runs.length) { drawPanels(); return; }
  document.querySelectorAll('.panel').forEach((figure) => watchPanel(figure, charts[Number(figure.dataset.chart)], null));
  sayPlotted(null);
}

function watchPanel(figure, chart, made) {
  const svg = figure.querySelector('svg');
  let at = null;
  const parts = () => { made ||= plot(chart); made.steps ||= stepsOf(made.lines); return made; };
  const show = (place) => { at = place; showTip(figure, svg, chart, parts(), parts().steps[place]); };
  const nearest = (event) => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * width / box.width, { steps, at: scale } = parts();
    return steps.reduce((best, one, place) => (Math.abs(scale.x(one.x) - x) < Math.abs(scale.x(steps[best].x) - x) ? place : best), 0);
  };
  const keys = {
    ArrowLeft: () => Math.max(0, (at ?? parts().steps.length) - 1), ArrowRight: () => Math.min(parts().steps.length - 1, (at ?? -1) + 1),
    Home: () => 0, End: () => parts().steps.length - 1,
  };
  svg.addEventListener('pointermove', (event) => show(nearest(event)));
  svg.addEventListener('pointerleave', () => clearTip(figure));
  svg.addEventListener('blur', () => { clearTip(figure); at = null; });
  svg.addEventListener('click', (event) => goToStep(parts().steps[nearest(event)].step));
  svg.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (keys[event.key]) show(keys[event.key]());
    else if (event.key === 'Enter' && at !== null) goToStep(parts().steps[at].step);
    else if (event.key === 'Escape') clearTip(figure);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Every step of the lines with its place on the x axis. */
function stepsOf(lines) {
  const found = new Map(lines.flatMap((line) => line.points.map((point) => [`${point[4]} ${point[0]}`, { x: point[0], step: point[4] }])));
  return [...found.values()].sort((a, b) => a.x - b.x);
}

function clearTip(figure) {
  figure.querySelectorAll('.tip, .cursor').forEach((node) => node.remove());
}

function showTip(figure, svg, chart, { lines, at }, { x: value, step }) {
  clearTip(figure);
  const x = at.x(value);
  svg.append(svgNode('line', { class: 'cursor', x1: x, x2: x, y1: upper, y2: bottom }));
  const say = (one) => ofChart(chart, one);
  const rows = lines.flatMap((line) => {
    const point = line.points.find((one) => one[4] === step);
    const who = [index.runs.length > 1 && line.label, chart.lines.training !== chart.title && line.name].filter(Boolean).join(', ');
    const range = point && point[2] != null ? ` (${say(point[2])} to ${say(point[3])})` : '';
    return point ? [h('div', { class: line.thin ? 'single' : '' }, plain(`${who} ${say(point[1])}${range}`.trim()))] : [];
  });
  const where = view.x === 'step' ? `step ${step}` : `step ${step}, ${ofAxis(value)}${view.x === 'tokens' ? ' tokens' : ''}`;
  const tip = h('div', { class: 'tip', role: 'status' }, h('div', {}, where), rows.length > 9 ? rows.filter((row) => row.className !== 'single') : rows);
  figure.append(tip);
  const place = svg.getBoundingClientRect().left - figure.getBoundingClientRect().left + x * svg.getBoundingClientRect().width / width;
  tip.style.left = `${Math.max(4, Math.min(place + 8, figure.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = '34px';
}
