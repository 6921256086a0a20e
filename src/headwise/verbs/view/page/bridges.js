/* The open head between two texts: the tokens that are looked at above, those that look below, and lines from one
   to the other. Width and ink are weight; the chosen token's lines stand out. */
function Bridges(run) {
  const svg = run.part("arcs");
  const ends = { from: Axis.along(run.queries), to: Axis.along(run.keys) };
  const HEIGHT = 144;
  const ALL_UP_TO = 64;        // tokens of either text; beyond it only the chosen token's lines are drawn
  const LEAST = 0.02;          // fainter lines of other tokens are left out
  const MOST = 96;             // lines of one token
  const WIDEST = 8;            // pixels of a line of weight 1, less where tokens stand close
  const PADDING = 12;
  const SINK_ROOM = 48;
  const all = ends.from.count <= ALL_UP_TO && ends.to.count <= ALL_UP_TO;
  let lines = null;            // side -> {at: x of each token, mode}
  let box = null;              // {top: y of the upper ends, widest, sink: x or null}
  const layers = {};

  function place(axis, width, left) {
    const cell = (width - left - 2 * PADDING) / axis.count;
    return { at: Array.from({ length: axis.count }, (_, i) => left + PADDING + (i + 0.5) * cell), mode: axis.fit(cell), cell };
  }

  const room = (axis, { mode }) => (mode.angle ? axis.longest() * (mode.angle === 45 ? 0.72 : 1) + 20 : 32);

  function draw(state, head) {
    const width = run.part("bench").clientWidth;
    const left = head.sinks ? SINK_ROOM : 0;
    lines = { from: place(ends.from, width, left), to: place(ends.to, width, left) };
    const widest = Math.min(WIDEST, Math.max(2, Math.min(lines.from.cell, lines.to.cell) * 0.6));
    box = { top: Math.ceil(room(ends.to, lines.to)), widest, sink: left ? left / 2 : null };
    svg.setAttribute("width", width);
    svg.setAttribute("height", Math.ceil(box.top + HEIGHT + room(ends.from, lines.from)));
    for (const name of ["others", "chosen", "names"]) layers[name] = Axis.make("g", { class: name });
    svg.replaceChildren(layers.others, layers.chosen, layers.names);
    svg.setAttribute("aria-label", "Layer " + state.layer + ", head " + state.head + " as lines between the two texts.");
    if (all) layers.others.append(...others(head, state.discount));
    names("from", box.top + HEIGHT + 2, true);
    names("to", box.top - 2, false);
    if (box.sink) layers.names.append(Axis.turned("sink", box.sink, box.top - 2, 0, false));
    follow(state, head);
  }

  function line(query, key, weight, colour) {
    const [x, y] = [lines.from.at[query], box.top + HEIGHT];
    const end = key === null ? box.sink : lines.to.at[key];
    const half = box.top + HEIGHT / 2;
    const d = "M" + x.toFixed(1) + " " + y + "C" + x.toFixed(1) + " " + half + " " + end.toFixed(1) + " " + half + " " + end.toFixed(1) + " " + box.top;
    return Axis.make("path", { d, fill: "none", stroke: colour, "stroke-width": Math.max(0.6, box.widest * weight).toFixed(2) });
  }

  function others(head, discount) {
    return ends.from.labels.flatMap((_, query) => head.from(query, discount)
      .filter(({ weight }) => weight >= LEAST)
      .map(({ token, weight }) => line(query, token, weight, Ink.colour(0.14))));
  }

  function names(side, y, below) {
    const { at, mode } = lines[side];
    for (const i of ends[side].places(mode.step)) {
      const name = Axis.turned(mode.step ? String(i) : ends[side].labels[i], at[i], y, mode.angle ?? 0, below);
      name.setAttribute("data-" + side, i);
      layers.names.append(name);
    }
  }

  /* The links of the chosen token that are drawn, the largest first. */
  function drawn(state, head) {
    const links = [...head.links(state.token, state.direction, state.discount)].sort((a, b) => b.weight - a.weight);
    return links.slice(0, MOST);
  }

  function follow(state, head) {
    const from = state.direction === "from";
    const made = drawn(state, head).reverse().map(({ token, weight }) => (
      line(from ? state.token : token, from ? token : state.token, weight, Ink.colour(Math.sqrt(weight)))
    ));
    const sink = from ? head.sink(state.token) : 0;
    if (sink > 0) made.push(line(state.token, null, sink, Ink.colour(Math.sqrt(sink))));
    layers.chosen.replaceChildren(...made);
    for (const old of layers.names.querySelectorAll(".chosen")) old.classList.remove("chosen");
    const chosen = layers.names.querySelector("[data-" + state.direction + '="' + state.token + '"]');
    if (chosen) chosen.classList.add("chosen");
  }

  return { draw, follow, drawn, shows: { all, least: LEAST } };
}
