// A page that is served asks whether the run has news, and takes them over without losing its place.
if (index.version) {
  let version = index.version;
  const say = (text) => { $('live').hidden = false; $('live').textContent = text; };
  say('live');
  setInterval(async () => {
    try {
      const now = await (await fetch('version')).text();
      if (now === version) return;
      const focused = document.activeElement?.id;
      const page = new DOMParser().parseFromString(await (await fetch('.')).text(), 'text/html');
      for (const id of ['result', 'curves', 'training', 'counts', 'data']) $(id).replaceWith(document.adoptNode(page.getElementById(id)));
      const news = JSON.parse($('index').textContent);
      charts = news.charts;
      for (const name of ['preambles', 'metrics', 'scale']) index[name] = news[name];
      columnsOfRuns = null;
      prepareCharts();
      const key = current?.key, second = other?.key;
      load(document);
      current = byKey.get(key) || null;
      other = byKey.get(second) || null;
      if (all.length && $('viewer').hidden) start(); else refresh();
      if (focused) $(focused)?.focus();
      version = now;
      say('live');
    } catch { say('the server is gone'); }
  }, 3000);
}
