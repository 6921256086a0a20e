/* One selection for the whole page. What is pinned is kept in the address; what is only pointed at is not. */
const State = (function () {
  const { runs } = Data;
  const statistics = Data.header.statistics.map((statistic) => statistic.key);
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
    for (let i = Math.min(tokens.length, SEEN_AT_ONCE) - 1; i >= 0; i--) {
      if (tokens[i].kind === "text" && tokens[i].text.trim()) return i;
    }
    return 0;
  }

  const pinned = {
    places: runs.map((run) => { const { layer, head } = firstHead(run); return { layer, head, token: null }; }),
    direction: "from", discount: false, show: "maps", order: "layer",
  };
  const pointed = runs.map(() => ({ head: null, token: null }));   // head: {layer, head}
  let lastStatistic = statistics[0];

  function current(run = runs[0]) {
    const { places, ...rest } = pinned;
    const place = places[run.index];
    const { layer, head } = pointed[run.index].head || place;
    const token = pointed[run.index].token ?? place.token ?? resting(run, pinned.direction);
    return { ...rest, layer, head, token };
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
    for (const [name, value] of Object.entries(changes)) {
      if (PLACE.includes(name)) pinned.places[run.index][name] = value;
      else pinned[name] = value;
    }
    if (pinned.show !== "maps") lastStatistic = pinned.show;
    writeAddress();
    announce(Object.keys(changes));
  }

  function point(changes, run = runs[0]) {
    const before = current(run);
    Object.assign(pointed[run.index], changes);
    const after = current(run);
    announce(PLACE.filter((name) => before[name] !== after[name]));
  }

  function writeAddress() {
    const fields = new URLSearchParams();
    for (const name of PLACE) if (pinned.places[0][name] !== null) fields.set(name, pinned.places[0][name]);
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
    const [run] = runs;
    const [place] = pinned.places;
    if (run.head(number("layer"), number("head"))) Object.assign(place, { layer: number("layer"), head: number("head") });
    const token = number("token");
    place.token = token !== null && token < tokensOf(run, pinned.direction).length ? token : null;
  }

  window.addEventListener("hashchange", () => { readAddress(); announce([...PLACE, ...Object.keys(pinned)]); });
  readAddress();

  return {
    current, pin, point, announce, tokensOf,
    pinned: (run = runs[0]) => pinned.places[run.index],
    listen: (listener) => listeners.push(listener),
    toggleDirection: () => pin({ direction: pinned.direction === "from" ? "to" : "from" }),
    toggleDiscount: () => pin({ discount: !pinned.discount }),
    toggleShow: () => pin({ show: pinned.show === "maps" ? lastStatistic : "maps" }),
  };
})();
