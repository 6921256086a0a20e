/* The text of a run, or the two texts of cross attention: the token pointed at is the query, or the key; the others
   take ink in proportion to weight. */
function TextZone(run) {
  const line = run.part("query-line");
  // Full ink never means less than this, so that thin rows look thin; over an image all rows are.
  const LEAST_FULL = run.grid ? 0.05 : 0.25;
  const NAMED = 4;             // tokens named in the line under the text
  const strips = run.crossed ? { from: strip("tokens", "from"), to: strip("key-tokens", "to") } : { from: strip("tokens", null) };
  if (!run.crossed) strips.to = strips.from;

  /* `side`: the direction that pointing at these tokens asks for; null where both ends are here. */
  function strip(id, side) {
    const keys = side !== "from";
    return Strip(run.part(id), keys ? run.keys : run.queries, keys ? run.grid : null, {
      point: (token) => State.point({ token, side: token === null ? null : side }, run),
      pin: (token) => State.pin(side ? { direction: side, token } : { token }, run),
    });
  }

  function build() {
    strips.from.build(run.crossed ? "Tokens that look at the other text." : "Tokens of the text. The chosen one is the query.");
    if (!run.crossed) return;
    strips.to.build("Tokens that are looked at.");
    run.part("key-tokens").hidden = false;
    for (const [id, tokens, what] of [["text-name", run.queries, "queries"], ["key-name", run.keys, "keys"]]) {
      const name = run.part(id);
      name.textContent = (Data.runs.length > 1 ? run.name + ", " : "") + what + ": " + Words.count(tokens.length, "token");
      name.hidden = false;
    }
  }

  /* Full ink stands for the largest weight shown; the line under the text says it. */
  function draw(state, head) {
    const chosen = strips[state.direction];
    const others = state.direction === "from" ? strips.to : strips.from;
    for (const one of new Set([chosen, others])) one.clear();
    const links = head.links(state.token, state.direction, state.discount);
    const full = links.reduce((largest, link) => Math.max(largest, link.weight), LEAST_FULL);
    chosen.mark(state.token);
    others.ink(links, full);
    say(state, head, links, full);
  }

  function say(state, head, links, full) {
    const from = state.direction === "from";
    const [own, others] = (from ? [run.queries, run.keys] : [run.keys, run.queries]).map((tokens) => Axis.along(tokens).labels);
    const lead = Words.element("span", "lead");
    lead.append(
      Words.element("span", "piece", own[state.token]),
      " token " + state.token + (from ? " looks at" : " is looked at by"),
    );
    const parts = [lead];
    const name = (text, weight, exact) => {
      const pair = Words.element("span", "pair");
      pair.append(Words.element("span", "piece", text), " ", Words.element("span", "number quiet", Words.weight(weight, exact)));
      parts.push(pair);
    };
    const largest = [...links].sort((a, b) => b.weight - a.weight).slice(0, NAMED);
    for (const { token, weight, exact } of largest) name(others[token], weight, exact);
    if (!largest.length) parts.push(Words.element("span", "pair", "no token"));
    const sink = from ? head.sink(state.token) : 0;
    if (sink > 0) name("learned sink", sink);
    parts.push(Words.element("span", "quiet", "full ink = " + Words.weight(full)));
    line.replaceChildren(...parts);
  }

  /* Marks what is pinned, on the side it is pinned on. */
  function pinned(token, direction) {
    strips.from.pinned(direction === "from" || !run.crossed ? token : null);
    if (run.crossed) strips.to.pinned(direction === "to" ? token : null);
  }

  return { build, draw, pinned };
}
