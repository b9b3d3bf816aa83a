// One trajectory, or two beside each other, turn by turn.
const SHADES = ['none', 'log_probs', 'advantages', 'mask'];
const SHADE_NAMES = { none: 'no shading', log_probs: 'log-prob', advantages: 'advantage', mask: 'response mask' };
let shade = 'log_probs';

function drawEpisodes() {
  const pair = [current, other].filter(Boolean);
  $('episodes').classList.toggle('two', pair.length === 2);
  const parting = pair.length === 2 ? firstDifference(...pair.map(episodeOf)) : -1;
  $('episodes').replaceChildren(...(pair.length ? pair.map((one) => episode(one, parting)) : []));
}

/** The first turn, from 0, in which two trajectories act differently; -1 where they do not. */
function firstDifference(first, second) {
  const acts = (turn) => (turn ? JSON.stringify([turn.state, turn.actions]) : '');
  for (let i = 0; i < Math.max(first.turns.length, second.turns.length); i++) if (acts(first.turns[i]) !== acts(second.turns[i])) return i;
  return -1;
}

function episode(one, parting) {
  const record = episodeOf(one), second = one === other;
  const chip = (text, kind = '') => h('span', { class: `chip ${kind}` }, ...shown(text));
  const facts = [`step ${one.step}`, one.split, `seed ${one.seed}`, `sample ${one.rollout_index}`];
  if (index.runs.length > 1) facts.unshift(index.runs[one.run]);
  if (record.seconds != null) facts.push(`${number(record.seconds)} s`);
  return h('article', { class: 'episode', 'data-key': one.key },
    h('h3', {}, ...shown(one.env), chip(`${SIGNS[one.outcome]} ${one.stop_reason.replaceAll('_', ' ')}`, one.outcome), chip(`return ${number(one.return)}`),
      one.kept === false && chip('not kept by the filter', 'warn')),
    h('div', { class: 'dim small' }, plain(facts.join(' · '))),
    second ? h('div', { class: 'tools' }, h('button', { type: 'button', onclick: () => choose(current) }, 'Stop comparing'))
      : tools(one, record),
    record.preamble !== undefined && h('details', {}, h('summary', {}, 'Task, as the model read it'), h('pre', {}, ...shown(index.preambles[record.preamble]))),
    record.error && h('p', { class: 'note alarm' }, ...shown(record.error)),
    record.turns.map((turn, at) => drawTurn(turn, at, at === parting)),
    lastState(record.turns.at(-1)),
    !record.turns.length && h('p', { class: 'empty' }, 'The episode ended before the first turn.'));
}

function tools(one, record) {
  const line = (peer) => `${SIGNS[peer.outcome]} ${peer.stop_reason.replaceAll('_', ' ')}, return ${number(peer.return)}`;
  const option = (text) => (peer) => h('option', { value: peer.key, selected: peer === other }, plain(`${text(peer)}: ${line(peer)}`));
  const group = members(one).filter((peer) => peer !== one), elsewhere = sameState(one);
  const run = (peer) => (index.runs.length > 1 ? `${index.runs[peer.run]}, ` : '');
  const pick = h('select', { class: 'compare', 'aria-label': 'Compare with', onchange: (event) => choose(one, byKey.get(event.target.value)) },
    h('option', { value: '' }, 'compare with …'),
    group.length > 0 && h('optgroup', { label: 'the same group' }, group.map(option((peer) => `sample ${peer.rollout_index}`))),
    elsewhere.length > 0 && h('optgroup', { label: 'the same state at another step' }, elsewhere.map(option((peer) => `${run(peer)}step ${peer.step}`))));
  const shades = SHADES.filter((name) => name === 'none' || record.turns.some((turn) => turn.tokens?.[name] !== undefined));
  const choice = shades.length > 1 && h('select', { class: 'shade', 'aria-label': 'Shading of tokens', onchange: (event) => { shade = event.target.value; drawEpisodes(); } },
    shades.map((name) => h('option', { value: name, selected: name === shade }, SHADE_NAMES[name])));
  return h('div', { class: 'tools' },
    h('button', { type: 'button', 'aria-label': 'Previous sample', onclick: () => move(-1) }, '←'),
    h('button', { type: 'button', 'aria-label': 'Next sample', onclick: () => move(1) }, '→'),
    group.length + elsewhere.length > 0 && pick, choice);
}

function drawTurn(turn, place, differs) {
  const figures = [['reward', turn.reward], ['penalty', turn.penalty || null], ['advantage', turn.advantage], ['tokens', turn.response_tokens]];
  const flags = [[turn.format_ok, 'format wrong'], [turn.valid, 'invalid action'], [turn.effective || !turn.valid, 'no effect']];
  const actions = (turn.actions || []).map((action, at) =>
    h('span', { class: at < (turn.executed || []).length ? 'action' : 'action skipped', title: at < (turn.executed || []).length ? 'executed' : 'not executed' }, ...shown(action, asked.query)));
  return h('section', { class: differs ? 'turn parts' : 'turn' },
    h('header', {}, h('b', {}, `Turn ${place + 1}`), figures.filter(([, value]) => value != null).map(([name, value]) => h('span', {}, `${name} ${number(value)}`)),
      flags.filter(([good]) => good === false).map(([, text]) => h('span', { class: 'chip warn' }, text)), differs && h('span', { class: 'chip warn' }, 'the first difference')),
    h('div', { class: 'body' },
      h('div', {}, h('h4', {}, 'State'), h('pre', { class: 'state' }, ...shown(turn.state || '', asked.query))),
      h('div', {}, turn.tokens ? tokens(turn) : [
        turn.reasoning && h('h4', {}, 'Reasoning'), turn.reasoning && h('div', { class: 'reasoning' }, ...shown(turn.reasoning, asked.query))],
      h('h4', {}, actions.length > 1 ? 'Actions' : 'Action'), h('div', {}, actions.length ? actions : h('span', { class: 'dim' }, 'none')),
      !turn.tokens && h('details', { open: !actions.length }, h('summary', {}, 'Response as sampled'), h('pre', {}, turn.prefix && h('span', { class: 'dim' }, ...shown(turn.prefix)), ...shown(turn.response || '', asked.query))),
      turn.user && h('details', {}, h('summary', {}, 'Message to the model'), h('pre', {}, ...shown(turn.user, asked.query))),
      turn.infos && h('details', {}, h('summary', {}, 'Infos of the environment'), h('pre', {}, ...shown(Object.entries(turn.infos).map((pair) => pair.join(': ')).join('\n')))))));
}

/** The response token by token: the shade is the number that was chosen, the title has all of them. */
function tokens(turn) {
  const at = (name, place) => (Array.isArray(turn.tokens[name]) ? turn.tokens[name][place] : turn.tokens[name]);
  const have = ['log_probs', 'advantages', 'mask'].filter((name) => turn.tokens[name] !== undefined);
  const values = have.includes(shade) ? turn.tokens.sizes.map((_, place) => at(shade, place)) : [];
  const most = Math.max(1e-9, ...values.map((value) => Math.abs(value ?? 0)));
  const characters = Array.from(turn.response || ''), spans = [];
  let from = 0;
  turn.tokens.sizes.forEach((size, place) => {
    const value = values[place], title = have.map((name) => `${SHADE_NAMES[name]} ${number(at(name, place))}`).join(', ');
    const span = h('span', { class: at('mask', place) === 0 ? 'token out' : 'token', title }, ...shown(characters.slice(from, from + size).join('')));
    if (value != null) {
      const strength = shade === 'log_probs' ? Math.min(1, -value / 4) : Math.abs(value) / most;
      span.style.background = `rgb(var(--${shade === 'log_probs' || value < 0 ? 'high' : 'low'}) / ${(0.5 * strength).toFixed(2)})`;
    }
    spans.push(span);
    from += size;
  });
  const rest = characters.slice(from).join('');
  return [h('h4', {}, values.length ? `Response, shaded by ${SHADE_NAMES[shade]}` : 'Response'),
    h('pre', { class: 'reasoning' }, turn.prefix && h('span', { class: 'dim' }, ...shown(turn.prefix)), spans, ...shown(rest))];
}

function lastState(turn) {
  return turn?.observation != null && h('section', { class: 'turn last' }, h('h4', {}, 'State at the end'), h('pre', { class: 'state' }, ...shown(turn.observation, asked.query)));
}
