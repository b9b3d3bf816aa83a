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
    .map((turn) => [turn.state, turn.response, turn.observation, ...(turn.actions || [])].join('\n'))
    .concat(episodeOf(one).error || '').join('\n').toLowerCase();
  return one.text;
}

const asked = { run: '', split: '', step: '', env: '', outcome: '', stop_reason: '', query: '' };

function matches(one, without = '') {
  for (const name of ['run', 'split', 'step', 'env', 'outcome', 'stop_reason']) {
    if (name !== without && asked[name] !== '' && String(one[name]) !== asked[name]) return false;
  }
  return !asked.query || textOf(one).includes(asked.query.toLowerCase());
}

const found = () => all.filter((one) => matches(one));

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
