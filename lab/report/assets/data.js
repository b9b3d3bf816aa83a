// The trajectories: an index of all, and the texts of a step, parsed when they are first looked at.
let parts = [], all = [], byKey = new Map();

function load(source) {
  const read = (id) => source.getElementById(id).textContent;
  const found = JSON.parse(read('index'));
  parts = found.parts.map((part, number) => ({ ...part, number, read: () => JSON.parse(read(`part-${number}`)) }));
  all = parts.flatMap((part) => part.items.map((item, place) => {
    const one = { part, place, run: part.run, split: part.split, step: part.step };
    found.fields.forEach((field, column) => { one[field] = item[column]; });
    one.group = [one.run, one.split, one.step, one.env, one.seed].join('/');
    one.key = `${one.group}/${one.rollout_index}`;
    return one;
  }));
  byKey = new Map(all.map((one) => [one.key, one]));
  const ends = new Map();
  for (const one of all) ends.set(one.group, (ends.get(one.group) || new Set()).add(one.outcome));
  for (const one of all) one.mixed = ends.get(one.group).has('solved') && ends.get(one.group).has('failed');
}

/** A text that holds another one came as what stands before and after it. */
const whole = (text, inner) => (Array.isArray(text) ? text[0] + inner + text[1] : text || '');

function episodeOf(one) {
  if (!one.part.records) {
    one.part.records = one.part.read();
    for (const turn of one.part.records.flatMap((record) => record.turns)) {
      turn.user = whole(turn.user, turn.state);
      turn.response = whole(turn.response, turn.reasoning);
    }
  }
  return one.part.records[one.place];
}

function textOf(one) {
  one.text ||= episodeOf(one).turns
    .map((turn) => [turn.state, turn.response, turn.observation, ...(turn.actions || []), ...(turn.calls || []).flatMap((call) => [call.name, call.arguments, call.result])].join('\n'))
    .concat(episodeOf(one).error || '').join('\n').toLowerCase();
  return one.text;
}

const asked = { run: '', split: '', step: '', env: '', outcome: '', stop_reason: '', only: '', sort: '', query: '' };
const ONLY = {
  mixed: ['groups with both outcomes', (one) => one.mixed], kept: ['kept by the filter', (one) => one.kept === true],
  dropped: ['dropped by the filter', (one) => one.kept === false], invalid: ['with an invalid turn', (one) => one.invalid],
};
const SORTS = {
  '-return': 'highest return', return: 'lowest return', '-length': 'longest', length: 'shortest', '-turns': 'most turns', turns: 'fewest turns',
};

function matches(one, without = '') {
  for (const name of ['run', 'split', 'step', 'env', 'outcome', 'stop_reason']) {
    if (name !== without && asked[name] !== '' && String(one[name]) !== asked[name]) return false;
  }
  if (without !== 'only' && asked.only && !ONLY[asked.only][1](one)) return false;
  return !asked.query || textOf(one).includes(asked.query.toLowerCase());
}

/** What was asked for, in the order that was asked for; groups stand where their first one does. */
function found() {
  const some = all.filter((one) => matches(one)), field = asked.sort.replace('-', ''), sign = asked.sort.startsWith('-') ? -1 : 1;
  return field ? some.sort((a, b) => sign * ((a[field] ?? 0) - (b[field] ?? 0))) : some;
}

/** The same initial state at other steps: the trajectory of the same number where there is one. */
function sameState(one) {
  const others = new Map();
  for (const other of all) {
    if (other.env === one.env && other.seed === one.seed && other.split === one.split && other.group !== one.group) {
      if (!others.has(other.group) || other.rollout_index === one.rollout_index) others.set(other.group, other);
    }
  }
  return [...others.values()];
}
const members = (one) => all.filter((other) => other.group === one.group);
load(document);
