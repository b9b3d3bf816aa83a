// Texts of models and environments: only ever set as textContent, with hidden characters shown as escapes.
const index = JSON.parse(document.getElementById('index').textContent);
const $ = (id) => document.getElementById(id);

const hex = (code, width) => code.toString(16).padStart(width, '0');
const hiddenClass = index.hidden.map(([first, last]) => `\\u{${hex(first, 1)}}-\\u{${hex(last, 1)}}`).join('');
const HIDDEN = new RegExp(`[${hiddenClass}]`, 'gu');

function escapeOf(character) {
  const code = character.codePointAt(0);
  return code < 0x100 ? `\\x${hex(code, 2)}` : code < 0x10000 ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
}

/** An element: properties first (class, or attributes), then children; strings become text nodes. */
function h(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

/** A text as nodes: hidden characters are marked escapes; what was searched for, and ranges [from, to], are marked. */
function shown(text, query = '', ranges = []) {
  const nodes = [];
  if (ranges.length) {
    let done = 0;
    for (const [from, to] of ranges) {
      nodes.push(...shown(text.slice(done, from), query), h('span', { class: 'apart' }, ...shown(text.slice(from, to), query)));
      done = to;
    }
    return [...nodes, ...shown(text.slice(done), query)];
  }
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) nodes.push(...marked(text.slice(from, found.index), query));
    nodes.push(h('span', { class: 'escape', title: 'a character that is not seen' }, escapeOf(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) nodes.push(...marked(text.slice(from), query));
  return nodes;
}

function marked(text, query) {
  if (!query) return [text];
  const nodes = [], folded = text.toLowerCase(), sought = query.toLowerCase();
  if (folded.length !== text.length) return [text];
  let from = 0;
  for (let at = folded.indexOf(sought); at >= 0 && nodes.length < 400; at = folded.indexOf(sought, from)) {
    nodes.push(text.slice(from, at), h('mark', {}, text.slice(at, at + sought.length)));
    from = at + sought.length;
  }
  nodes.push(text.slice(from));
  return nodes.filter((node) => node !== '');
}

/** A text on one line for titles and options. */
const plain = (text) => String(text).replace(HIDDEN, escapeOf);

const number = (value) => (typeof value !== 'number' ? '–' : String(Number(value.toPrecision(3))).replace('-', '−'));
