// One trajectory, or two beside each other, turn by turn.
const SHADES = ['none', 'log_probs', 'advantages', 'mask'];
const SHADE_NAMES = { none: 'no shading', log_probs: 'log-prob', advantages: 'advantage', mask: 'response mask' };
let shade = 'log_probs';

function drawEpisodes() {
  const pair = [current, other].filter(Boolean);
  $('episodes').classList.toggle('two', pair.length === 2);
  const records = pair.map(episodeOf), parting = pair.length === 2 ? firstDifference(...records) : -1;
  const said = records.map(({ turns }) => (turns[parting]?.tokens ? turns[parting].response : turns[parting]?.reasoning) || '');
  const words = parting < 0 ? [] : differingWords(...said);
  $('episodes').replaceChildren(...pair.map((one, place) => episode(one, parting, words[place] || [])));
}

/** The first turn, from 0, in which two trajectories think or act differently; -1 where they do not. */
function firstDifference(first, second) {
  const acts = (turn) => (turn ? JSON.stringify([turn.state, turn.actions, turn.reasoning || turn.response]) : '');
  for (let i = 0; i < Math.max(first.turns.length, second.turns.length); i++) if (acts(first.turns[i]) !== acts(second.turns[i])) return i;
  return -1;
}

const MOST_PAIRS = 400000;

/** The ranges of characters of the words of two texts that a longest common subsequence leaves out. */
function differingWords(...texts) {
  const [a, b] = texts.map((text) => [...text.matchAll(/\S+/g)]);
  const same = (i, j) => a[i][0] === b[j][0];
  let begin = 0, ends = [a.length, b.length];
  while (begin < Math.min(...ends) && same(begin, begin)) begin++;
  while (Math.min(...ends) > begin && same(ends[0] - 1, ends[1] - 1)) ends = ends.map((end) => end - 1);
  const [m, n] = ends.map((end) => end - begin), kept = [new Set(), new Set()];
  if (m * n <= MOST_PAIRS) {
    const longest = Array.from({ length: m + 1 }, () => new Uint16Array(n + 1));
    for (let i = m - 1; i >= 0; i--) for (let j = n - 1; j >= 0; j--) longest[i][j] = same(begin + i, begin + j) ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    for (let i = 0, j = 0; i < m && j < n;) {
      if (same(begin + i, begin + j)) { kept[0].add(begin + i++); kept[1].add(begin + j++); } else if (longest[i + 1][j] >= longest[i][j + 1]) i++; else j++;
    }
  }
  return [a, b].map((words, side) => words.flatMap((word, at) => (at < begin || at >= ends[side] || kept[side].has(at) ? [] : [[word.index, word.index + word[0].length]])));
}

function episode(one, parting, words) {
  const record = episodeOf(one), second = one === other;
  const chip = (text, kind = '') => h('span', { class: `chip ${kind}` }, ...shown(text));
  const facts = [!index.policies[one.run] && `step ${one.step}`, one.split, `seed ${one.seed}`, `sample ${one.rollout_index}`].filter(Boolean);
  if (index.runs.length > 1) facts.unshift(index.runs[one.run]);
  if (record.seconds != null) facts.push(`${number(record.seconds)} s`);
  return h('article', { class: 'episode', 'data-key': one.key },
    h('h3', {}, ...shown(one.env), chip(`${SIGNS[one.outcome]} ${one.stop_reason.replaceAll('_', ' ')}`, one.outcome), chip(`return ${number(one.return)}`),
      one.kept === false && chip('not kept by the filter', 'warn')),
    h('div', { class: 'dim small' }, plain(facts.join(' · '))),
    second ? h('div', { class: 'tools' }, h('button', { type: 'button', onclick: () => choose(current, null) }, 'Stop comparing'))
      : tools(one, record),
    record.preamble !== undefined && h('details', {}, h('summary', {}, 'Task, as the model read it'), h('pre', {}, ...shown(index.preambles[record.preamble]))),
    record.error && h('p', { class: 'note alarm' }, ...shown(record.error)),
    record.turns.map((turn, at) => drawTurn(turn, at, at === parting, at === parting ? words : [])),
    lastState(record.turns.at(-1)),
    !record.turns.length && h('p', { class: 'empty' }, 'The episode ended before the first turn.'));
}

function tools(one, record) {
  const line = (peer) => `${SIGNS[peer.outcome]} ${peer.stop_reason.replaceAll('_', ' ')}, return ${number(peer.return)}`;
  const option = (text) => (peer) => h('option', { value: peer.key, selected: peer === other }, plain(`${text(peer)}: ${line(peer)}`));
  const group = members(one).filter((peer) => peer !== one), elsewhere = sameState(one);
  const where = (peer) => [index.runs.length > 1 && index.runs[peer.run], !index.policies[peer.run] && `step ${peer.step}`].filter(Boolean).join(', ');
  const pick = h('select', { class: 'compare', 'aria-label': 'Compare with', onchange: (event) => choose(one, byKey.get(event.target.value) || null) },
    h('option', { value: '' }, 'compare with …'),
    group.length > 0 && h('optgroup', { label: 'the same group' }, group.map(option((peer) => `sample ${peer.rollout_index}`))),
    elsewhere.length > 0 && h('optgroup', { label: index.policies[one.run] ? 'the same state, another policy' : 'the same state at another step' }, elsewhere.map(option(where))));
  const shades = SHADES.filter((name) => name === 'none' || record.turns.some((turn) => turn.tokens?.[name] !== undefined));
  const choice = shades.length > 1 && h('select', { class: 'shade', 'aria-label': 'Shading of tokens', onchange: (event) => { shade = event.target.value; drawEpisodes(); } },
    shades.map((name) => h('option', { value: name, selected: name === shade }, SHADE_NAMES[name])));
  return h('div', { class: 'tools' },
    h('button', { type: 'button', 'aria-label': 'Previous sample', onclick: () => move(-1) }, '←'),
    h('button', { type: 'button', 'aria-label': 'Next sample', onclick: () => move(1) }, '→'),
    group.length + elsewhere.length > 0 && pick, choice, choice && scaleOf(shade));
}

/** What the colours of a shading mean; advantages have one scale on the whole page. */
function scaleOf(name) {
  const ends = { log_probs: ['−4 and less', '0', 'high', null], advantages: [`−${number(index.scale)}`, number(index.scale), 'high', 'low'], mask: ['0', '1', null, 'low'] }[name];
  if (!ends) return null;
  const [from, to, lower, upper] = ends, colour = (one) => (one ? `rgb(var(--${one}) / .5)` : 'transparent');
  const bar = h('i', { class: 'gradient' });
  bar.style.background = `linear-gradient(to right, ${colour(lower)}, transparent 50%, ${colour(upper)})`;
  return h('span', { class: 'scale dim small', title: name === 'advantages' ? 'one scale for the whole page; stronger ones have the same colour' : '' }, from, bar, to);
}

/** A call of a tool, folded: name, time and kind of error are seen, arguments and result when it is opened. */
function drawCall(call) {
  const took = call.seconds != null ? ` ${number(call.seconds)} s` : '';
  return h('details', { class: 'call' },
    h('summary', {}, h('span', { class: 'action' }, ...shown(call.name || 'a call')), took, call.error && h('span', { class: 'chip warn' }, ...shown(call.error))),
    ['arguments', 'result'].filter((name) => call[name]).flatMap((name) => [h('h4', {}, name), h('pre', {}, ...shown(call[name], asked.query))]));
}

function drawTurn(turn, place, differs, words) {
  const figures = [['reward', turn.reward], ...Object.entries(turn.rewards || {}), ['penalty', turn.penalty || null], ['advantage', turn.advantage], ['tokens', turn.response_tokens]];
  const flags = [[turn.format_ok, 'format wrong'], [turn.valid, 'invalid action'], [turn.effective || !turn.valid, 'no effect']];
  const actions = (turn.actions || []).map((action, at) =>
    h('span', { class: at < (turn.executed || []).length ? 'action' : 'action skipped', title: at < (turn.executed || []).length ? 'executed' : 'not executed' }, ...shown(action, asked.query)));
  return h('section', { class: differs ? 'turn parts' : 'turn' },
    h('header', {}, h('b', {}, `Turn ${place + 1}`), figures.filter(([, value]) => value != null).map(([name, value]) => h('span', {}, `${name} ${number(value)}`)),
      flags.filter(([good]) => good === false).map(([, text]) => h('span', { class: 'chip warn' }, text)), differs && h('span', { class: 'chip warn' }, 'the first difference')),
    h('div', { class: 'body' },
      h('div', {}, h('h4', {}, 'State'), h('pre', { class: 'state' }, ...shown(turn.state || '', asked.query))),
      h('div', {}, turn.tokens ? tokens(turn, words) : [
        turn.reasoning && h('h4', {}, 'Reasoning'), turn.reasoning && h('div', { class: 'reasoning' }, ...shown(turn.reasoning, asked.query, words))],
      h('h4', {}, actions.length > 1 ? 'Actions' : 'Action'), h('div', {}, actions.length ? actions : h('span', { class: 'dim' }, 'none')),
      (turn.calls || []).map(drawCall),
      !turn.tokens && h('details', { open: !actions.length }, h('summary', {}, 'Response as sampled'), h('pre', {}, turn.prefix && h('span', { class: 'dim' }, ...shown(turn.prefix)), ...shown(turn.response || '', asked.query))),
      turn.user && h('details', {}, h('summary', {}, 'Message to the model'), h('pre', {}, ...shown(turn.user, asked.query))),
      turn.infos && h('details', {}, h('summary', {}, 'Infos of the environment'), h('pre', {}, ...shown(Object.entries(turn.infos).map((pair) => pair.join(': ')).join('\n')))))));
}

/** The response token by token: the shade is the number that was chosen, the title has all of them. */
function tokens(turn, words) {
  const at = (name, place) => (Array.isArray(turn.tokens[name]) ? turn.tokens[name][place] : turn.tokens[name]);
  const have = ['log_probs', 'advantages', 'mask'].filter((name) => turn.tokens[name] !== undefined);
  const values = have.includes(shade) ? turn.tokens.sizes.map((_, place) => at(shade, place)) : [];
  const most = shade === 'advantages' ? index.scale || 1 : 1;
  const characters = Array.from(turn.response || ''), spans = [];
  let from = 0, letters = 0;
  turn.tokens.sizes.forEach((size, place) => {
    const value = values[place], title = have.map((name) => `${SHADE_NAMES[name]} ${number(at(name, place))}`).join(', ');
    const text = characters.slice(from, from + size).join('');
    const apart = words.some(([begin, end]) => begin < letters + text.length && letters < end);
    const span = h('span', { class: `token${at('mask', place) === 0 ? ' out' : ''}${apart ? ' apart' : ''}`, title }, ...shown(text));
    letters += text.length;
    if (value != null) {
      const strength = shade === 'log_probs' ? Math.min(1, -value / 4) : Math.min(1, Math.abs(value) / most);
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
