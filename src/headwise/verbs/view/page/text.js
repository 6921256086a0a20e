/* The text of a run: the token pointed at is the query; the others take ink in proportion to weight. */
function TextZone(run) {
  const line = run.part("query-line");
  const LEAST_FULL = 0.25;     // full ink never means less than this, so that thin rows look thin
  const NAMED = 4;             // tokens named in the line under the text
  const strip = Strip(run.part("tokens"), run.queries, {
    point: (token) => State.point({ token }, run),
    pin: (token) => State.pin({ token }, run),
  });

  function build() {
    strip.build("Tokens of the text. The chosen one is the query.");
  }

  /* Full ink stands for the largest weight shown; the line under the text says it. */
  function draw(state, head) {
    strip.clear();
    const links = head.links(state.token, state.direction, state.discount);
    const full = links.reduce((largest, link) => Math.max(largest, link.weight), LEAST_FULL);
    strip.mark(state.token);
    strip.ink(links, full);
    say(state, head, links, full);
  }

  function say(state, head, links, full) {
    const labels = Axis.along(run.queries).labels;
    const lead = Words.element("span", "lead");
    lead.append(
      Words.element("span", "piece", labels[state.token]),
      " token " + state.token + (state.direction === "from" ? " looks at" : " is looked at by"),
    );
    const parts = [lead];
    const name = (text, weight, exact) => {
      const pair = Words.element("span", "pair");
      pair.append(Words.element("span", "piece", text), " ", Words.element("span", "number quiet", Words.weight(weight, exact)));
      parts.push(pair);
    };
    const largest = [...links].sort((a, b) => b.weight - a.weight).slice(0, NAMED);
    for (const { token, weight, exact } of largest) name(labels[token], weight, exact);
    if (!largest.length) parts.push(Words.element("span", "pair", "no token"));
    const sink = state.direction === "from" ? head.sink(state.token) : 0;
    if (sink > 0) name("learned sink", sink);
    parts.push(Words.element("span", "quiet", "full ink = " + Words.weight(full)));
    line.replaceChildren(...parts);
  }

  return { build, draw, pinned: strip.pinned };
}
