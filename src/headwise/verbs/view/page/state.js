/* One selection for the whole page. What is pinned is kept in the address; what is only pointed at is not. */
const State = (function () {
  const { header } = Data;
  const statistics = header.statistics.map((statistic) => statistic.key);
  const SEEN_AT_ONCE = 128;
  const listeners = [];
  const changed = new Set();
  let waiting = false;

  /* The head that is open at first: the one that looks most at the previous token, whose picture explains itself. */
  function firstHead() {
    const inFocus = (head) => header.focus_layer === null || head.layer === header.focus_layer;
    const candidates = header.heads.filter(inFocus);
    let best = candidates[0] || header.heads[0];
    for (const head of candidates) if ((head.previous_token ?? -1) > (best.previous_token ?? -1)) best = head;
    return best;
  }

  /* The query until one is chosen: the last word, in a long text the last of those seen without scrolling. */
  function lastText() {
    for (let i = Math.min(header.seq_len, SEEN_AT_ONCE) - 1; i >= 0; i--) {
      if (header.tokens[i].kind === "text" && header.tokens[i].text.trim()) return i;
    }
    return 0;
  }

  const opened = firstHead();
  const pinned = {
    layer: opened.layer, head: opened.head, token: null,
    direction: "from", discount: false, show: "maps", order: "layer",
  };
  const pointed = { head: null, token: null };   // head: {layer, head}
  const restingToken = lastText();
  let lastStatistic = statistics[0];

  function current() {
    const head = pointed.head || pinned;
    const token = pointed.token ?? pinned.token ?? restingToken;
    return { ...pinned, layer: head.layer, head: head.head, token };
  }

  function announce(names) {
    for (const name of names) changed.add(name);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const seen = new Set(changed);
      changed.clear();
      for (const listener of listeners) listener(current(), seen);
    });
  }

  function pin(changes) {
    Object.assign(pinned, changes);
    if (pinned.show !== "maps") lastStatistic = pinned.show;
    writeAddress();
    announce(Object.keys(changes));
  }

  function point(changes) {
    const before = current();
    Object.assign(pointed, changes);
    const after = current();
    announce(["layer", "head", "token"].filter((name) => before[name] !== after[name]));
  }

  function writeAddress() {
    const fields = new URLSearchParams({ layer: pinned.layer, head: pinned.head });
    if (pinned.token !== null) fields.set("token", pinned.token);
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
    if (Data.head(number("layer"), number("head"))) {
      Object.assign(pinned, { layer: number("layer"), head: number("head") });
    }
    const token = number("token");
    pinned.token = token !== null && token < header.seq_len ? token : null;
    pinned.direction = fields.get("direction") === "to" ? "to" : "from";
    pinned.discount = fields.get("first") === "out";
    pinned.show = statistics.includes(fields.get("show")) ? fields.get("show") : "maps";
    pinned.order = statistics.includes(fields.get("order")) ? fields.get("order") : "layer";
    if (pinned.show !== "maps") lastStatistic = pinned.show;
  }

  window.addEventListener("hashchange", () => { readAddress(); announce(Object.keys(pinned)); });
  readAddress();

  return {
    current, pin, point, announce, pinned,
    listen: (listener) => listeners.push(listener),
    toggleDirection: () => pin({ direction: pinned.direction === "from" ? "to" : "from" }),
    toggleDiscount: () => pin({ discount: !pinned.discount }),
    toggleShow: () => pin({ show: pinned.show === "maps" ? lastStatistic : "maps" }),
  };
})();
