// The list: groups of what was asked for, a cell for each trajectory; the filters above it.
const MOST_GROUPS = 400;
const SIGNS = { solved: '✓', failed: '✗', excluded: '–' };
const FILTERS = { run: 'run', split: 'split', step: 'step', env: 'env', outcome: 'outcome', stop: 'stop_reason' };
let listed = [], current = null, other = null, wide = MOST_GROUPS, touched = false;

/** The choices of a filter: what occurs beside the other filters, with counts. */
function fillFilters() {
  for (const [id, field] of Object.entries(FILTERS)) {
    const counts = new Map();
    for (const one of all) if (matches(one, field)) counts.set(String(one[field]), (counts.get(String(one[field])) || 0) + 1);
    if (asked[field] !== '' && !counts.has(asked[field])) counts.set(asked[field], 0);
    const values = [...counts.keys()].sort((a, b) => (field === 'step' ? a - b : a < b ? -1 : 1));
    const label = (value) => (field === 'run' ? index.runs[value] : value.replaceAll('_', ' '));
    const options = values.map((value) => h('option', { value }, `${plain(label(value))} (${counts.get(value)})`));
    $(id).replaceChildren(h('option', { value: '' }, 'all'), ...options);
    $(id).value = asked[field];
  }
  const only = Object.entries(ONLY).map(([value, [text, test]]) => [value, text, all.filter((one) => test(one) && matches(one, 'only')).length]);
  const choices = only.filter(([value, , count]) => count || value === asked.only).map(([value, text, count]) => h('option', { value }, `${text} (${count})`));
  $('only').replaceChildren(h('option', { value: '' }, 'all'), ...choices);
  $('only').value = asked.only;
  $('sort').replaceChildren(h('option', { value: '' }, 'as played'), ...Object.entries(SORTS).map(([value, text]) => h('option', { value }, text)));
  $('sort').value = asked.sort;
}

function grouped() {
  const groups = new Map();
  for (const one of listed) {
    if (!groups.has(one.group)) groups.set(one.group, []);
    groups.get(one.group).push(one);
  }
  return [...groups.values()];
}

function cell(one) {
  const kept = one.kept === false ? ', not kept by the filter' : '';
  const title = plain(`${one.env}, seed ${one.seed}, sample ${one.rollout_index}, step ${one.step}: ${one.stop_reason}, return ${number(one.return)}, ${one.turns} turns, ${one.length} tokens${kept}`);
  const classes = ['cell', one.outcome, one.kept === false && 'dropped', one === current && 'current', one === other && 'other'];
  return h('button', { type: 'button', class: classes.filter(Boolean).join(' '), title, 'aria-label': title, 'data-key': one.key, tabindex: -1 }, SIGNS[one.outcome]);
}

function drawList() {
  const severalRuns = new Set(listed.map((one) => one.run)).size > 1;
  const groups = grouped(), rows = [], single = groups.every((group) => group.length === 1);
  const steps = new Set(listed.map((one) => one.step)).size > 1, several = new Set(listed.map((one) => one.env)).size > 1;
  if (single) rows.push(h('div', { class: 'group' }, h('div', { class: 'cells' }, groups.slice(0, wide).map(([one]) => cell(one)))));
  else for (const group of groups.slice(0, wide)) {
    const [one] = group, solved = group.filter((member) => member.outcome === 'solved').length;
    const name = [severalRuns && index.runs[one.run], steps && `step ${one.step}`, several && one.env, `seed ${one.seed}`].filter(Boolean).join(' · ');
    rows.push(h('div', { class: group.includes(current) ? 'group current' : 'group' },
      h('div', {}, h('span', {}, plain(name)), h('span', {}, `${solved}/${group.length}`)),
      h('div', { class: 'cells' }, group.map(cell))));
  }
  if (groups.length > wide) rows.push(h('button', { type: 'button', class: 'quiet', onclick: () => { wide *= 4; drawList(); } }, `${groups.length - wide} more groups`));
  if (!rows.length || !groups.length) rows.splice(0, rows.length, h('p', { class: 'empty' }, 'No trajectory is like this.'));
  $('list').replaceChildren(...rows);
  const chosen = $('list').querySelector('.cell.current');
  if (chosen) {
    const box = chosen.getBoundingClientRect(), frame = $('list').getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) $('list').scrollTop += box.top - frame.top - frame.height / 2;
  }
}

function refresh(keep = true) {
  listed = found();
  const solved = listed.filter((one) => one.outcome === 'solved').length;
  $('found').textContent = `${listed.length.toLocaleString('en')} trajectories in ${grouped().length.toLocaleString('en')} groups, ${solved.toLocaleString('en')} solved`;
  fillFilters();
  if (!keep || !listed.includes(current)) { other = null; current = listed[0] || null; }
  wide = MOST_GROUPS;
  drawList();
  drawEpisodes();
  keepAddress();
}

/** Beside a policy's trajectory the same state stays with the policy that it was compared with. */
const besides = (one) => (one && other && index.policies[one.run] && sameState(one).find((peer) => peer.run === other.run)) || null;

function choose(one, second = besides(one)) {
  if (!one) return;
  current = one;
  other = second;
  if (!listed.includes(one)) {
    for (const field of Object.values(FILTERS)) if (asked[field] !== '' && asked[field] !== String(one[field])) asked[field] = field === 'step' ? String(one.step) : '';
    if (!matches(one)) { asked.query = asked.only = ''; $('search').value = ''; }
    listed = found();
    fillFilters();
  }
  drawList();
  drawEpisodes();
  keepAddress();
}

/** The address names all that is looked at: trajectory, comparison, filters, search, curves. */
function keepAddress() {
  const given = { t: current?.key, c: other?.key, ...asked, x: view.x === 'step' ? '' : view.x, smooth: view.smooth || '', metric: view.metric, all: view.all ? 1 : '' };
  const kept = new URLSearchParams(Object.entries(given).filter(([, value]) => value));
  if (touched) history.replaceState(null, '', `#${kept}`);
}

/** The step nearest to one that was clicked, in the split that is looked at. */
function goToStep(step) {
  const steps = [...new Set(all.filter((one) => asked.split === '' || one.split === asked.split).map((one) => one.step))];
  if (!steps.length) return;
  asked.step = String(steps.reduce((best, one) => (Math.abs(one - step) < Math.abs(best - step) ? one : best)));
  refresh(false);
  $('trajectories').scrollIntoView();
}
