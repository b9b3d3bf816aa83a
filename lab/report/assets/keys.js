// Filters, clicks and keys.
function move(by) {
  const place = listed.indexOf(current);
  choose(listed[Math.min(listed.length - 1, Math.max(0, place + by))]);
}

function moveGroup(by) {
  const groups = grouped(), place = groups.findIndex((group) => group.includes(current));
  choose(groups[Math.min(groups.length - 1, Math.max(0, place + by))]?.[0]);
}

function moveStep(by) {
  if (!current) return;
  const split = all.filter((one) => one.split === current.split && one.run === current.run);
  const steps = [...new Set(split.map((one) => one.step))].sort((a, b) => a - b);
  const step = steps[steps.indexOf(current.step) + by];
  if (step === undefined) return;
  const same = sameState(current).find((one) => one.step === step && one.run === current.run);
  if (asked.step !== '') asked.step = String(step);
  choose(same || split.find((one) => one.step === step && matches(one)) || split.find((one) => one.step === step));
}

const KEYS = {
  ArrowLeft: () => move(-1), ArrowRight: () => move(1), ArrowUp: () => moveGroup(-1), ArrowDown: () => moveGroup(1),
  '[': () => moveStep(-1), ']': () => moveStep(1), '?': () => $('help').showModal(),
  '/': () => { $('viewer').scrollIntoView(); $('search').focus(); $('search').select(); },
  c: () => {
    const group = current ? members(current) : [], next = group[(group.indexOf(current) + 1) % group.length];
    choose(current, other ? null : next !== current ? next : sameState(current)[0] || null);
  },
  s: () => { const have = SHADES.filter((name) => name === 'none' || episodeOf(current).turns.some((turn) => turn.tokens?.[name] !== undefined)); shade = have[(have.indexOf(shade) + 1) % have.length]; drawEpisodes(); },
};
const ANYWHERE = new Set(['/', '?']);

/** The arrows scroll the page as always until the viewer is in sight. */
function inSight() {
  const box = $('viewer').getBoundingClientRect();
  return box.top < window.innerHeight * 0.6 && box.bottom > 0;
}

document.addEventListener('keydown', (event) => {
  if ($('help').open || event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  const act = KEYS[event.key];
  if (!act || !all.length || !(ANYWHERE.has(event.key) || inSight())) return;
  event.preventDefault();
  act();
});

let typing;
$('search').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(() => { asked.query = $('search').value; refresh(); }, 150);
});
for (const [id, field] of [...Object.entries(FILTERS), ['only', 'only'], ['sort', 'sort']]) $(id).addEventListener('change', () => { asked[field] = $(id).value; refresh(); });
$('filters').addEventListener('submit', (event) => event.preventDefault());
$('filters').addEventListener('reset', () => { for (const name of Object.keys(asked)) asked[name] = ''; setTimeout(refresh); });
$('list').addEventListener('click', (event) => { const key = event.target.dataset?.key; if (key) choose(byKey.get(key)); });
$('help-button').addEventListener('click', () => $('help').showModal());
window.addEventListener('hashchange', start);

/** What the address names, or the last step of training; of an evaluation a state with two policies beside each other. */
function start() {
  const named = new URLSearchParams(location.hash.slice(1)), one = byKey.get(named.get('t')), have = (name) => named.get(name) || '';
  if (!touched) {
    Object.assign(view, { x: ['tokens', 'time'].includes(have('x')) ? have('x') : 'step', smooth: Math.min(0.98, Math.max(0, Number(have('smooth')) || 0)), metric: have('metric'), all: have('all') === '1' });
    prepareCharts();
  }
  if (all.length) openNamed(named, one, have);
  touched = true;
}

function openNamed(named, one, have) {
  $('viewer').hidden = false;
  const filtered = Object.keys(asked).filter((name) => named.has(name));
  if (one && listed.includes(one) && !filtered.length) { choose(one, byKey.get(named.get('c')) || null); return; }
  const wanted = one || all.filter((each) => each.split === 'train').at(-1) || (index.policies.some(Boolean) ? all[0] : all.at(-1));
  const places = index.policies[wanted.run] ? {} : { split: wanted.split, step: String(wanted.step) };
  for (const name of Object.keys(asked)) asked[name] = filtered.length ? have(name) : places[name] || '';
  if (!ONLY[asked.only]) asked.only = '';
  if (!SORTS[asked.sort]) asked.sort = '';
  $('search').value = asked.query;
  refresh(false);
  if (one) { choose(one, byKey.get(named.get('c')) || null); $('trajectories').scrollIntoView(); }
  else if (current && index.policies[current.run]) choose(current, sameState(current).find((peer) => peer.run !== current.run) || null);
}
start();
