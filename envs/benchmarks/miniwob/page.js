// What the environment calls in a page of MiniWoB++: functions of this file by their names.
(() => {
  const refs = new Map(); // element -> its number, from its first look on
  const parts = []; // number - 1 -> element

  const ref = (element) => {
    if (!refs.has(element)) {
      parts.push(element);
      refs.set(element, parts.length);
    }
    return refs.get(element);
  };

  const shown = (element) => {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    return style.display !== "none" && style.visibility !== "hidden" && (box.width > 0 || box.height > 0);
  };

  const ownText = (element) =>
    [...element.childNodes]
      .filter((node) => node.nodeType === Node.TEXT_NODE)
      .map((node) => node.textContent)
      .join(" ")
      .replace(/\s+/g, " ")
      .trim();

  const SKIPPED = new Set(["SCRIPT", "STYLE", "OPTION", "BR"]);
  const ACTIVE = new Set(["INPUT", "BUTTON", "TEXTAREA", "SELECT", "A", "CIRCLE", "RECT", "POLYGON", "TEXT"]);

  const elements = () => {
    const found = [];
    const visit = (element) => {
      if (SKIPPED.has(element.tagName.toUpperCase()) || !shown(element)) return;
      if (element.matches(".ui-resizable-handle, .ui-icon, .ui-button-icon-space")) return;
      const tag = element.tagName.toLowerCase();
      const text = ownText(element);
      if (text || ACTIVE.has(tag.toUpperCase()) || element.onclick || element.children.length === 0) {
        const one = { ref: ref(element), tag, text, id: element.id || "", kind: element.getAttribute("class") || "" };
        for (const name of ["type", "title", "placeholder", "fill", "style"]) {
          const value = element.getAttribute(name);
          if (value && (name !== "style" || /color/.test(value))) one[name] = value;
        }
        if (tag === "input" || tag === "textarea" || tag === "select") one.value = element.value;
        if (element.type === "checkbox" || element.type === "radio") one.checked = element.checked;
        if (tag === "select") one.options = [...element.options].map((option) => option.text);
        if (element === document.activeElement) one.focused = true;
        found.push(one);
      }
      [...element.children].forEach(visit);
    };
    // dialogs and menus of jQuery UI lie beside the task's own area
    const outside = new Set(["sync-task-cover", "click-canvas", "reward-display", "query"]);
    const roots = [];
    for (const child of document.body.children) {
      if (outside.has(child.id)) continue;
      if (child.id === "wrap") roots.push(...[...child.children].filter((one) => !outside.has(one.id)));
      else roots.push(child);
    }
    roots.forEach(visit);
    return found;
  };

  const events = (element, names, make) => names.forEach((name) => element.dispatchEvent(make(name)));

  globalThis.ragen = {
    begin(seed, seconds) {
      if (seconds !== null) core.EPISODE_MAX_TIME = seconds * 1000;
      Math.seedrandom(seed);
      core.startEpisodeReal();
    },
    ready: () => WOB_TASK_READY,
    look: () => ({ task: core.getUtterance(), elements: elements() }),
    score: () => ({ done: WOB_DONE_GLOBAL, raw: WOB_RAW_REWARD_GLOBAL, reward: WOB_REWARD_GLOBAL }),
    click(number) {
      const element = parts[number - 1];
      if (!element || !element.isConnected || !shown(element)) return false;
      element.scrollIntoView({ block: "center" });
      const box = element.getBoundingClientRect();
      const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true, cancelable: true };
      events(element, ["mouseover", "mousemove", "mousedown"], (name) => new MouseEvent(name, { ...at, view: window }));
      if (element.focus) element.focus();
      events(element, ["mouseup", "click"], (name) => new MouseEvent(name, { ...at, view: window }));
      return true;
    },
    write(number, text) {
      const element = parts[number - 1];
      if (!element || !element.isConnected || !shown(element)) return false;
      if (!["INPUT", "TEXTAREA"].includes(element.tagName)) return false;
      element.focus();
      element.value = text;
      const bubbles = { bubbles: true };
      events(element, ["keydown", "keypress"], (name) => new KeyboardEvent(name, bubbles));
      events(element, ["input"], (name) => new Event(name, bubbles));
      events(element, ["keyup"], (name) => new KeyboardEvent(name, bubbles));
      events(element, ["change"], (name) => new Event(name, bubbles));
      return true;
    },
    choose(number, option) {
      const element = parts[number - 1];
      if (!element || !element.isConnected || element.tagName !== "SELECT") return false;
      const place = [...element.options].findIndex((one) => one.text === option);
      if (place < 0) return false;
      element.selectedIndex = place;
      events(element, ["input", "change"], (name) => new Event(name, { bubbles: true }));
      return true;
    },
  };
})();
