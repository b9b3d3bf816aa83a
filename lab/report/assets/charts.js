// Values under the pointer; a click looks at the step's trajectories.
const { left, right, top: upper, bottom, width } = index.geometry;
let charts = index.charts;

function prepareCharts() {
  for (const figure of document.querySelectorAll('.panel')) {
    const svg = figure.querySelector('svg'), chart = charts[Number(figure.dataset.chart)];
    const nearest = (event) => {
      const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * width / box.width;
      const at = chart.first + (chart.last - chart.first) * (x - left) / (right - left);
      const steps = Object.values(chart.lines).flat().map((point) => point[0]);
      return steps.reduce((best, step) => (Math.abs(step - at) < Math.abs(best - at) ? step : best));
    };
    svg.addEventListener('pointermove', (event) => showTip(figure, svg, chart, nearest(event)));
    svg.addEventListener('pointerleave', () => clearTip(figure));
    svg.addEventListener('click', (event) => goToStep(nearest(event)));
  }
}

function clearTip(figure) {
  figure.querySelectorAll('.tip, .cursor').forEach((node) => node.remove());
}

function showTip(figure, svg, chart, step) {
  clearTip(figure);
  const x = left + (right - left) * (step - chart.first) / (chart.last - chart.first);
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  for (const [name, value] of Object.entries({ class: 'cursor', x1: x, x2: x, y1: upper, y2: bottom })) line.setAttribute(name, value);
  svg.append(line);
  const say = (value) => (chart.percent ? `${(100 * value).toFixed(1)} %` : number(value));
  const rows = Object.entries(chart.lines).flatMap(([key, points]) => {
    const point = points.find((one) => one[0] === step);
    const [run, name] = key.split('/');
    const who = index.runs.length > 1 ? `${index.runs[run]}, ${name}` : name;
    const range = point && point[2] != null ? ` (${say(point[2])} to ${say(point[3])})` : '';
    return point ? [h('div', {}, `${plain(who)} ${say(point[1])}${range}`)] : [];
  });
  const tip = h('div', { class: 'tip' }, h('div', {}, `step ${step}`), rows);
  figure.append(tip);
  const place = svg.offsetLeft || svg.getBoundingClientRect().left - figure.getBoundingClientRect().left;
  const at = place + x * svg.getBoundingClientRect().width / width;
  tip.style.left = `${Math.max(4, Math.min(at + 8, figure.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = '34px';
}
prepareCharts();
