/* One selection for the whole page. What is pinned is kept in the address; what is only pointed at is not. */
const State = (function () {
  const { runs } = Data;
  const statistics = Data.measures.map((statistic) => statistic.key);
  const SEEN_AT_ONCE = 128;
  const PLACE = ["layer", "head", "token"];   // what each run has of its own
  const listeners = [];
  const changed = new Set();
  let waiting = false;

  /* The head that is open at first: the one that looks most at the previous token, whose picture explains itself. */
  function firstHead({ header }) {
    const inFocus = (head) => header.focus_layer === null || head.layer === header.focus_layer;
    const candidates = header.heads.filter(inFocus);
    let best = candidates[0] || header.heads[0];
    for (const head of candidates) if ((head.previous_token ?? -1) > (best.previous_token ?? -1)) best = head;
    return best;
  }

  const tokensOf = (run, direction) => (direction === "from" ? run.queries : run.keys);

  /* The query until one is chosen: the last word, in a long text the last of those seen without scrolling. */
  function resting(run, direction) {
    const tokens = tokensOf(run, direction);
    if (run.grid && tokens === run.keys) return Patches.middle(tokens, run.grid);
    for (let i = Math.min(tokens.length, SEEN_AT_ONCE) - 1; i >= 0; i--) {
      if (tokens[i].kind === "text" && tokens[i].text.trim()) return i;
    }
    return 0;
  }

  const opened = runs.map((run) => firstHead(Data.sameHeads ? runs[0] : run));
  const pinned = {
    places: opened.map(({ layer, head }) => ({ layer, head, token: null })),
    direction: "from", discount: false, show: "maps", order: "layer",
  };
  // head: {layer, head}; side: the direction that pointing at one of two texts asks for
  const pointed = runs.map(() => ({ head: null, token: null, side: null }));
  let lastStatistic = statistics[0];

  function current(run) {
    const { places, ...rest } = pinned;
    const place = places[run.index];
    const { layer, head } = pointed[run.index].head || place;
    const direction = pointed[run.index].side ?? pinned.direction;
    const token = pointed[run.index].token ?? place.token ?? resting(run, direction);
    return { ...rest, layer, head, token, direction };
  }

  /* The runs that move together: both where they have the same heads, or the same tokens. */
  function together(name, run) {
    return (name === "token" || name === "side" ? Data.sameTokens : Data.sameHeads) ? runs : [run];
  }

  function announce(names) {
    for (const name of names) changed.add(name);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const seen = new Set(changed);
      changed.clear();
      for (const listener of listeners) listener(seen);
    });
  }

  function pin(changes, run = runs[0]) {
    // The other direction's tokens are others where there are two texts.
    if (changes.direction && changes.direction !== pinned.direction) {
      for (const one of runs) if (one.crossed) pinned.places[one.index].token = null;
    }
    for (const [name, value] of Object.entries(changes)) {
      if (PLACE.includes(name)) for (const one of together(name, run)) pinned.places[one.index][name] = value;
      else pinned[name] = value;
    }
    if (pinned.show !== "maps") lastStatistic = pinned.show;
    writeAddress();
    announce(Object.keys(changes));
  }

  function point(changes, run = runs[0]) {
    const before = runs.map(current);
    for (const [name, value] of Object.entries(changes)) {
      for (const one of together(name, run)) pointed[one.index][name] = value;
    }
    const after = runs.map(current);
    announce([...PLACE, "direction"].filter((name) => runs.some((_, i) => before[i][name] !== after[i][name])));
  }

  /* In the address what runs have in common stands once. */
  const fieldOf = (name, run) => (together(name, run).includes(runs[0]) ? name : name + run.suffix);

  function writeAddress() {
    const fields = new URLSearchParams();
    for (const run of runs) {
      for (const [name, value] of Object.entries(pinned.places[run.index])) if (value !== null) fields.set(fieldOf(name, run), value);
    }
    if (pinned.direction !== "from") fields.set("direction", pinned.direction);
    if (pinned.discount) fields.set("first", "out");
    if (pinned.show !== "maps") fields.set("show", pinned.show);
    if (pinned.order !== "layer") fields.set("order", pinned.order);
    history.replaceState(null, "", "#" + fields);
  }

  /* Takes from the address what exists in this page. */
  function readAddress() {
    const fields = new URLSearchParams(location.hash.slice(1));
    const number = (name) => (/^\d+$/u.test(fields.get(name) ?? "") ? Number(fields.get(name)) : null);
    pinned.direction = fields.get("direction") === "to" ? "to" : "from";
    pinned.discount = fields.get("first") === "out";
    pinned.show = statistics.includes(fields.get("show")) ? fields.get("show") : "maps";
    pinned.order = statistics.includes(fields.get("order")) ? fields.get("order") : "layer";
    if (pinned.show !== "maps") lastStatistic = pinned.show;
    for (const run of runs) {
      const place = pinned.places[run.index];
      const [layer, head, token] = PLACE.map((name) => number(fieldOf(name, run)));
      if (run.head(layer, head)) Object.assign(place, { layer, head });
      place.token = token !== null && token < tokensOf(run, pinned.direction).length ? token : null;
    }
  }

  window.addEventListener("hashchange", () => { readAddress(); announce([...PLACE, ...Object.keys(pinned)]); });
  readAddress();

  return {
    current: (run = runs[0]) => current(run), pin, point, announce, tokensOf,
    pinned: (run = runs[0]) => ({ ...pinned.places[run.index], direction: pinned.direction }),
    listen: (listener) => listeners.push(listener),
    toggleDirection: () => pin({ direction: pinned.direction === "from" ? "to" : "from" }),
    toggleDiscount: () => pin({ discount: !pinned.discount }),
    toggleShow: () => pin({ show: pinned.show === "maps" ? lastStatistic : "maps" }),
  };
})();
